// worker.cpp: one rank of a job, a process of its own, that runs a random sequence of calls. Arguments: seed, calls,
// most elements, on how many hosts the ranks shall think they are (0: on this one), and perhaps `messages`, of which
// there are so many rounds and bytes then.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/comm/random_calls.hpp"
#include "tests/comm/random_messages.hpp"

int main(int count, char** arguments) {
    const bool messages = count == 6 && strcmp(arguments[5], "messages") == 0;
    if (count != 5 && !messages) return fprintf(stderr, "usage: worker SEED CALLS MOST_ELEMENTS HOSTS [messages]\n"), 2;
    if (const int hosts = atoi(arguments[4]); hosts > 0) {
        // Before the library reads it.
        const int own = atoi(getenv("WEFT_RANK")) * hosts / atoi(getenv("WEFT_SIZE"));
        setenv("WEFT_HOSTID", ("node" + std::to_string(own)).c_str(), 1);
    }
    weft::test::Sequence sequence;
    sequence.seed = uint32_t(strtoul(arguments[1], nullptr, 10));
    sequence.calls = atoi(arguments[2]);
    sequence.most_elements = strtoul(arguments[3], nullptr, 10);
    weftComm_t comm = nullptr;
    if (weftCommInitFromEnvironment(&comm, nullptr) != weftSuccess) {
        fprintf(stderr, "%s\n", weftGetLastError(nullptr));
        return 1;
    }
    const std::string wrong =
        messages ? weft::test::run_random_messages({comm}, {sequence.seed, sequence.calls, sequence.most_elements})
                 : run_random_calls(comm, sequence);
    if (!wrong.empty()) {
        fprintf(stderr, "%s\n", wrong.c_str());
        return 1;
    }
    int rank = -1;
    weftCommUserRank(comm, &rank);
    printf("rank %d is content\n", rank);
    return weftCommDestroy(comm) == weftSuccess ? 0 : 1;
}
