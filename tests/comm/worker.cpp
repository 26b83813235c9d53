// worker.cpp: one rank of a job, a process, that runs a random sequence of calls.
// Arguments: seed, calls, most elements, number of simulated hosts (0: this one), and perhaps a kind of sequence.
//
// `messages` and `windows` have that many rounds and bytes; `splits` are steps in a family of communicators; `programs`
// are rounds of all kinds of calls.
//
// `order` compares the results of calls with those of rank order, up to that many elements.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/comm/random_calls.hpp"
#include "tests/comm/random_messages.hpp"
#include "tests/comm/random_programs.hpp"
#include "tests/comm/random_splits.hpp"
#include "tests/comm/random_windows.hpp"
#include "tests/comm/rank_order_calls.hpp"

int main(int count, char** arguments) {
    const std::string kind = count == 6 ? arguments[5] : "calls";
    if (count < 5 || (kind != "calls" && kind != "messages" && kind != "splits" && kind != "programs" &&
                      kind != "order" && kind != "windows"))
        return fprintf(stderr,
                       "usage: worker SEED CALLS MOST_ELEMENTS HOSTS [messages|splits|programs|order|windows]\n"),
               2;
    if (const int hosts = atoi(arguments[4]); hosts > 0) {
        // Before the library reads it.
        const int own = atoi(getenv("WEFT_RANK")) * hosts / atoi(getenv("WEFT_SIZE"));
        setenv("WEFT_HOSTID", ("node" + std::to_string(own)).c_str(), 1);
    }
    weft::internal::test::Sequence sequence;
    sequence.seed = uint32_t(strtoul(arguments[1], nullptr, 10));
    sequence.calls = atoi(arguments[2]);
    sequence.most_elements = strtoul(arguments[3], nullptr, 10);
    weftComm_t comm = nullptr;
    if (weftCommInitFromEnvironment(&comm, nullptr) != weftSuccess) {
        fprintf(stderr, "%s\n", weftGetLastError(nullptr));
        return 1;
    }
    int own = -1, ranks = 0;
    (void)weftCommUserRank(comm, &own);
    (void)weftCommCount(comm, &ranks);
    if (kind == "order") {
        const weft::internal::test::RankOrderResult result =
            weft::internal::test::run_rank_order_calls(comm, sequence.seed, sequence.most_elements);
        if (!result.wrong.empty()) return fprintf(stderr, "%s\n", result.wrong.c_str()), 1;
        printf("order %d of %d\n", result.differing, result.calls);
        return weftCommDestroy(comm) == weftSuccess ? 0 : 1;
    }
    const std::string wrong =
        kind == "messages"
            ? weft::internal::test::run_random_messages({comm}, {sequence.seed, sequence.calls, sequence.most_elements})
        : kind == "windows"
            ? weft::internal::test::run_random_windows(comm, {sequence.seed, sequence.calls, sequence.most_elements})
        : kind == "programs" ? weft::internal::test::run_random_program(comm, sequence)
        : kind == "splits"
            ? weft::internal::test::run_random_splits({{own, comm}}, ranks, sequence.seed, sequence.calls)
            : run_random_calls(comm, sequence);
    if (!wrong.empty()) {
        fprintf(stderr, "%s\n", wrong.c_str());
        return 1;
    }
    printf("rank %d is content\n", own);
    return kind == "splits" || weftCommDestroy(comm) == weftSuccess ? 0 : 1;
}
