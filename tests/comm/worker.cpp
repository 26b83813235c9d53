// worker.cpp: one rank of a job, a process of its own, that runs a random sequence of calls. Arguments: seed, calls,
// most elements.
#include <cstdio>
#include <cstdlib>

#include "tests/comm/random_calls.hpp"

int main(int count, char** arguments) {
    if (count != 4) return fprintf(stderr, "usage: worker SEED CALLS MOST_ELEMENTS\n"), 2;
    weft::test::Sequence sequence;
    sequence.seed = uint32_t(strtoul(arguments[1], nullptr, 10));
    sequence.calls = atoi(arguments[2]);
    sequence.most_elements = strtoul(arguments[3], nullptr, 10);
    weftComm_t comm = nullptr;
    if (weftCommInitFromEnvironment(&comm, nullptr) != weftSuccess) {
        fprintf(stderr, "%s\n", weftGetLastError(nullptr));
        return 1;
    }
    const std::string wrong = run_random_calls(comm, sequence);
    if (!wrong.empty()) {
        fprintf(stderr, "%s\n", wrong.c_str());
        return 1;
    }
    int rank = -1;
    weftCommUserRank(comm, &rank);
    printf("rank %d is content\n", rank);
    return weftCommDestroy(comm) == weftSuccess ? 0 : 1;
}
