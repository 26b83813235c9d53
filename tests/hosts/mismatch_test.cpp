// mismatch_test.cpp: ranks of several hosts that call different things: every rank gets an error with both calls, and
// lives.
#include "tests/faults/difference.hpp"
#include "tests/hosts/spread_job.hpp"

using namespace weft::internal::test;

namespace {

const std::vector<Difference> differences = with_common({
    {"order",
     {"reduce=8", "reduce=90000"},
     {"reduce=90000", "reduce=8"},
     "all_reduce of 8 int32",
     "all_reduce of 90000 int32"},
    {"size", {"reduce=1"}, {"reduce=5000000"}, "all_reduce of 1 int32", "all_reduce of 5000000 int32"},
});

}  // namespace

TEST_CASE("different calls on several hosts are an error of all ranks that names both calls", "[mismatch]") {
    for (const Difference& difference : differences)
        for (const char* algo : {"", "ring"})
            for (const auto& [hosts, per_host] : {std::pair(2, 1), std::pair(2, 2), std::pair(3, 1)}) {
                if (small() && hosts * per_host != 4) continue;
                SpreadJob job(hosts, per_host);
                const int odd = job.ranks() - 1;
                INFO(difference.what << " differs on rank " << odd << " of " << job.ranks() << " on " << hosts
                                     << " hosts " << algo);
                const std::string later = job.another_id();
                for (int rank = 0; rank < job.ranks(); ++rank)
                    job.start(rank, steps_of(difference, rank == odd, later),
                              {std::string("WEFT_ALGO=") + algo, quiet});
                job.finish();
                check_told(job, difference);
            }
}

TEST_CASE("in every collective ranks of several hosts report a call that differs", "[mismatch]") {
    for (const WrongCall& wrong : wrong_calls)
        for (const auto& [hosts, per_host] : {std::pair(2, 1), std::pair(2, 2)}) {
            if (small() && per_host != 2) continue;
            SpreadJob job(hosts, per_host);
            const int odd = job.ranks() - 1;
            INFO(wrong.usual << " where rank " << odd << " of " << job.ranks() << " on " << hosts << " hosts calls "
                             << wrong.odd);
            for (int rank = 0; rank < job.ranks(); ++rank) job.start(rank, wrong.steps(rank == odd), {quiet});
            job.finish();
            wrong.check_told(job);
        }
}
