// worker.cpp: one rank of a job, a process of its own, that runs a random sequence of calls. Arguments: seed, calls,
// most elements (or `splits`: steps in a family of communicators instead), and on how many hosts the ranks shall think
// they are (0: on this one).
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/comm/random_calls.hpp"
#include "tests/comm/random_splits.hpp"

int main(int count, char** arguments) {
    if (count != 5) return fprintf(stderr, "usage: worker SEED CALLS MOST_ELEMENTS HOSTS\n"), 2;
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
    int own = -1, ranks = 0;
    weftCommUserRank(comm, &own);
    weftCommCount(comm, &ranks);
    const bool splits = std::string(arguments[3]) == "splits";
    const std::string wrong = splits
                                  ? weft::test::run_random_splits({{own, comm}}, ranks, sequence.seed, sequence.calls)
                                  : run_random_calls(comm, sequence);
    if (!wrong.empty()) {
        fprintf(stderr, "%s\n", wrong.c_str());
        return 1;
    }
    printf("rank %d is content\n", own);
    return splits || weftCommDestroy(comm) == weftSuccess ? 0 : 1;
}
