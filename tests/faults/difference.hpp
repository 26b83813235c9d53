// difference.hpp: the ways in which ranks' calls can differ, on one host and on several, and the errors of each.
#pragma once
#include <vector>

#include "tests/faults/job.hpp"

namespace weft::internal::test {

struct Difference {
    const char* what;
    Steps usual, odd;          // calls of all ranks but one, and of that one
    const char *theirs, *its;  // as the sentence names them
    const char* algo = "";
    bool or_only_named = false;  // see check_told
};

// Differences of every kind of job, and those of one test.
inline std::vector<Difference> with_common(std::vector<Difference> own) {
    std::vector<Difference> all{
        {"count", {"reduce=1000"}, {"reduce=1001"}, "all_reduce of 1000 int32, sum", "all_reduce of 1001 int32, sum"},
        {"type", {"reduce=1000"}, {"reduce=1000,7"}, "all_reduce of 1000 int32, sum", "all_reduce of 1000 float, sum"},
        {"operation",
         {"reduce=1000"},
         {"reduce=1000,2,2"},
         "all_reduce of 1000 int32, sum",
         "all_reduce of 1000 int32, max"},
    };
    all.insert(all.end(), own.begin(), own.end());
    return all;
}

// The steps of a rank, which after the calls that differ makes another communicator.
inline Steps steps_of(const Difference& difference, bool odd, const std::string& later_id) {
    Steps steps{"init"};
    const Steps& calls = odd ? difference.odd : difference.usual;
    steps.insert(steps.end(), calls.begin(), calls.end());
    steps.insert(steps.end(), {"reduce=1", "async", "destroy", "id=" + later_id, "init", "reduce=1000", "destroy"});
    return steps;
}
// Every rank gets an error, and lives on. At least one rank learns both calls. If `or_only_named`, a rank may have
// ended its empty calls and gone on, so that only its rank and a later call are known.
inline void check_told(Job& job, const Difference& difference) {
    bool both = false, only_named = false;
    for (int rank = 0; rank < job.processes(); ++rank) {
        INFO("rank " << rank << " said\n" << job[rank].output());
        CHECK(job.answer(rank, "async") == "9");
        CHECK(contains(job[rank].output(), "reduce 9 "));
        CHECK(contains(job[rank].output(), "every rank must make the same calls in the same order"));
        both |= contains(job[rank].output(), difference.theirs) && contains(job[rank].output(), difference.its);
        only_named |= contains(job[rank].output(), "something else before operation ") ||
                      contains(job[rank].output(), " sent data that rank ");
        CHECK(job.answer(rank, "init") == "0");  // the new communicator
        CHECK(job.answer(rank, "reduce") == "0");
    }
    CHECK((both || (difference.or_only_named && only_named)));
}

// A collective that one rank calls in another way, or another one in its place.
struct WrongCall {
    const char *usual, *odd, *theirs, *its;

    Steps steps(bool differs) const {
        return {"init", std::string("call=") + (differs ? odd : usual), "reduce=1", "async", "destroy"};
    }
    // Every rank gets an error; at least one rank learns both calls.
    void check_told(Job& job) const {
        bool both = false;
        for (int rank = 0; rank < job.processes(); ++rank) {
            INFO("rank " << rank << " said\n" << job[rank].output());
            CHECK(job.answer(rank, "async") == "9");
            CHECK(contains(job[rank].output(), "every rank must make the same calls in the same order"));
            both |= contains(job[rank].output(), theirs) && contains(job[rank].output(), its);
            // Of a rank that had ended its call and gone on only the next one is known.
            both |= contains(job[rank].output(), "something else before operation 2");
        }
        CHECK(both);
    }
};
inline const WrongCall wrong_calls[] = {
    {"broadcast,1000,1", "broadcast,1000,0", "broadcast of 1000 int32, root 1", "broadcast of 1000 int32, root 0"},
    {"broadcast,1000", "broadcast,1001", "broadcast of 1000 int32", "broadcast of 1001 int32"},
    {"broadcast,10", "broadcast,11", "broadcast of 10 int32", "broadcast of 11 int32"},
    {"broadcast,200", "broadcast,300", "broadcast of 200 int32", "broadcast of 300 int32"},
    {"reduce,2", "reduce,3", "reduce of 2 int32, sum, root 0", "reduce of 3 int32, sum, root 0"},
    {"reduce,1000", "reduce,1001", "reduce of 1000 int32, sum, root 0", "reduce of 1001 int32, sum, root 0"},
    {"all_gather,1000", "all_gather,1001", "all_gather of 1000 int32", "all_gather of 1001 int32"},
    {"reduce,1000", "reduce,1000,0,2,1", "reduce of 1000 int32, sum, root 0", "reduce of 1000 int32, prod, root 0"},
    {"all_gather,1000", "all_gather,1000,0,3", "all_gather of 1000 int32", "all_gather of 1000 uint32"},
    {"all_gather,1000", "reduce_scatter,1000", "all_gather of 1000 int32", "reduce_scatter of 1000 int32, sum"},
    {"reduce_scatter,100", "reduce_scatter,101", "reduce_scatter of 100 int32", "reduce_scatter of 101 int32"},
    {"reduce_scatter,100", "reduce_scatter,100,0,3", "reduce_scatter of 100 int32", "reduce_scatter of 100 uint32"},
    {"all_to_all,1000", "all_to_all,1001", "all_to_all of 1000 int32", "all_to_all of 1001 int32"},
    {"gather,1000", "gather,1001", "gather of 1000 int32, root 0", "gather of 1001 int32, root 0"},
    {"scatter,1000,1", "scatter,1000,0", "scatter of 1000 int32, root 1", "scatter of 1000 int32, root 0"},
    {"scatter,1000", "scatter,1001", "scatter of 1000 int32, root 0", "scatter of 1001 int32, root 0"},
    {"scatter,3", "scatter,4", "scatter of 3 int32, root 0", "scatter of 4 int32, root 0"},
    {"barrier", "broadcast,1", "barrier", "broadcast of 1 int32, root 0"},
};

}  // namespace weft::internal::test
