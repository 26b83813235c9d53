// mismatch_test.cpp: ranks that call different things: every rank gets an error with both ranks and both calls, and
// lives.
#include "tests/faults/difference.hpp"

using namespace weft::internal::test;

namespace {

const std::vector<Difference> differences = with_common({
    {"order",
     {"reduce=8", "reduce=9"},
     {"reduce=9", "reduce=8"},
     "all_reduce of 8 int32, sum",
     "all_reduce of 9 int32, sum"},
    {"algorithm by size",
     {"reduce=1"},
     {"reduce=10000000"},
     "all_reduce of 1 int32, sum",
     "all_reduce of 10000000 int32, sum"},
    {"count around a ring",
     {"reduce=1000"},
     {"reduce=1001"},
     "all_reduce of 1000 int32, sum",
     "all_reduce of 1001 int32, sum",
     "ring"},
    {"type around a ring",
     {"reduce=1000"},
     {"reduce=1000,3"},
     "all_reduce of 1000 int32, sum",
     "all_reduce of 1000 uint32, sum",
     "ring"},
    {"order around a ring",
     {"reduce=8", "reduce=90000"},
     {"reduce=90000", "reduce=8"},
     "all_reduce of 8 int32, sum",
     "all_reduce of 90000 int32, sum",
     "ring"},
    {"nothing around a ring",
     {"reduce=1"},
     {"reduce=0", "reduce=0"},
     "all_reduce of 1 int32, sum",
     "all_reduce of 0 int32, sum",
     "ring",
     true},
});

}  // namespace

TEST_CASE("different calls are an error of all ranks that names both calls", "[mismatch]") {
    for (const Difference& difference : differences)
        for (int ranks = 2; ranks <= (small() ? 2 : 4); ++ranks)
            for (const int odd : {0, ranks - 1}) {
                INFO(difference.what << " differs on rank " << odd << " of " << ranks);
                Job job(ranks);
                const std::string later = job.another_id();
                for (int rank = 0; rank < ranks; ++rank)
                    job.start(rank, steps_of(difference, rank == odd, later),
                              {std::string("WEFT_ALGO=") + difference.algo, quiet});
                job.finish();
                for (int rank = 0; rank < ranks; ++rank) {
                    CHECK(job.error(rank, "reduce").id == job.error(0, "reduce").id);
                    CHECK(job.error(rank, "reduce").id.rfind("mismatch.", 0) == 0);
                }
                check_told(job, difference);
            }
}

TEST_CASE("in every collective all ranks report a call that differs", "[mismatch]") {
    // Over the flag block and over connections, on which a rank that only sends has ended before another looks: the
    // next call returns the error.
    for (const char* algo : {"", "ring,all_pairs,linear,dissemination"})
        for (const WrongCall& wrong : wrong_calls)
            for (int ranks = 2; ranks <= (small() ? 2 : 3); ++ranks) {
                INFO(wrong.usual << " where rank " << ranks - 1 << " of " << ranks << " calls " << wrong.odd << ", by "
                                 << algo);
                Job job(ranks);
                for (int rank = 0; rank < ranks; ++rank)
                    job.start(rank, wrong.steps(rank == ranks - 1), {std::string("WEFT_ALGO=") + algo, quiet});
                job.finish();
                wrong.check_told(job);
            }
}

TEST_CASE("different roots of ranks that only send are an error of the next call", "[mismatch]") {
    Job job(2);
    // Once there are connections each sends its part to the other, which is no root of its own call.
    for (int rank = 0; rank < 2; ++rank)
        job.start(rank,
                  {"init", "call=reduce,10,0", "call=reduce,10,1", rank == 0 ? "call=reduce,10,1" : "call=reduce,10,0",
                   "call=reduce,20,0", "reduce=1", "async", "destroy"},
                  {"WEFT_ALGO=ring", quiet});
    job.finish();
    bool named = false;
    for (int rank = 0; rank < 2; ++rank) {
        INFO(job[rank].output());
        CHECK(job.answer(rank, "async") == "9");
        const Job::Error error = job.error(rank, "reduce");
        CHECK(error.id == "mismatch.call");
        named |= error.rank == 1 && error.peer == 0 && error.sequence == 3;
    }
    CHECK(named);
}

TEST_CASE("one-shot beside a ring: calls that share no word are compared all the same", "[mismatch]") {
    // The lists differ by size only through the choice: small calls are one-shot, large ones go round the ring.
    for (int ranks = 2; ranks <= 4; ++ranks) {
        Job job(ranks);
        for (int rank = 0; rank < ranks; ++rank)
            job.start(rank, {"init", rank == ranks - 1 ? "reduce=4" : "reduce=20000000", "async", "destroy"},
                      {"WEFT_ALGO=one_shot,ring", quiet});
        job.finish();
        for (int rank = 0; rank < ranks; ++rank) {
            INFO(job[rank].output());
            CHECK(job.error(rank, "reduce").id == "mismatch.count");
            CHECK(job.error(rank, "reduce").concerns(ranks - 1));
            CHECK(contains(job.answer(rank, "reduce"), "20000000"));
            CHECK(contains(job.answer(rank, "reduce"), "all_reduce of 4 int32"));
            CHECK(job.answer(rank, "async") == "9");
        }
    }
}

TEST_CASE("a rank that makes one call fewer and leaves is named", "[mismatch]") {
    for (const char* algo : {"", "ring"}) {
        Job job(3);
        for (int rank = 0; rank < 3; ++rank) {
            Steps steps{"init", "reduce=100"};
            if (rank != 1) steps.insert(steps.end(), {"reduce=100", "async"});
            steps.push_back("destroy");
            job.start(rank, steps, {std::string("WEFT_ALGO=") + algo, quiet});
        }
        job.finish();
        for (const int rank : {0, 2}) {
            CHECK_JOB_ERROR(job, rank, "reduce", "rank.left", 1);
            CHECK(job.error(rank, "reduce").sequence == 2);
            CHECK(contains(job.answer(rank, "reduce"), "(pid " + std::to_string(job[1].pid()) + ")"));
            CHECK(job.answer(rank, "async") == "6");
        }
    }
}
