// Sharded models with a rank that registers wrong arguments, aborts, or dies: each other rank gets an error that names
// it, and no call hangs.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/train.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "src/train/sharding/shard_groups.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"
#include "tests/train/small_units.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

namespace {

// One iteration, up to its first error. `before` is called with the number of each step that waits for other ranks.
template <class Before>
weftResult_t iterate(weftTrainShard_t shard, Before&& before) {
    for (int unit = 0; unit < 2; ++unit) {
        before(unit);
        if (const auto result = weftTrainShardGather(shard, unit, nullptr); result != weftSuccess) return result;
        if (const auto result = weftTrainShardRelease(shard, unit, weftTrainBackward, nullptr); result != weftSuccess)
            return result;
        before(2);
        if (const auto result = weftTrainShardReduceScatter(shard, unit, weftTrainSynchronize, nullptr);
            result != weftSuccess)
            return result;
    }
    before(3);
    return weftTrainShardFinish(shard, nullptr);
}

// Memory that the ranks, which are processes, share with the test.
struct Job {
    weftUniqueId id;
    std::atomic<bool> has_id, dying, dead;
    char seen[4][400];
};
void wait_until(const std::atomic<bool>& flag) {
    while (!flag.load(std::memory_order_acquire)) usleep(500);  // pairs with the release stores of Job's flags
}

// The step of the second iteration before or in which rank 1 dies.
struct Death {
    int step;
    bool inside;  // rank 2 does not come to the step before rank 1 is dead
    int shard_ranks;
};

std::string survive(Job& job, int ranks, int rank, const Death& death) {
    if (rank == 0) {
        if (weftGetUniqueId(&job.id) != weftSuccess) return text_of(weftInternalError);
        job.has_id.store(true, std::memory_order_release);
    }
    wait_until(job.has_id);
    weftComm_t comm = nullptr;
    if (weftCommInitRank(&comm, ranks, job.id, rank) != weftSuccess) return weftGetLastError(nullptr);
    SmallUnits small;
    small.config.shardRanks = death.shard_ranks;
    weftTrainShard_t shard = nullptr;
    if (small.create(comm, &shard) != weftSuccess) return weftGetLastError(nullptr);
    weftResult_t result = weftSuccess;
    for (int iteration = 0; iteration < 4 && result == weftSuccess; ++iteration)
        result = iterate(shard, [&](int step) {
            if (iteration != 1 || step != death.step) return;
            if (rank == 1 && !death.inside) _exit(0);
            if (rank == 1) job.dying.store(true, std::memory_order_release);
            if (rank == 2 && death.inside) wait_until(job.dead);
        });
    const weftErrorInfo_t info = last_error();
    const std::string id = info.id;
    // A rank of another copy of the model may see first that a survivor has ended its object.
    const bool names_it = id == "rank.died" ? info.failedRank == 1 : id == "abort.remote" && death.shard_ranks > 0;
    const std::string sentence = text_of(result);
    if (weftTrainShardDestroy(shard) != weftSuccess) return weftGetLastError(nullptr);
    (void)weftCommAbort(comm);
    return names_it ? "" : sentence.empty() ? "no error" : sentence;
}

// The complaints of the ranks that live.
std::vector<std::string> on_processes(int ranks, const Death& death) {
    auto* const job =
        static_cast<Job*>(mmap(nullptr, sizeof(Job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    REQUIRE(job != MAP_FAILED);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            const std::string seen = survive(*job, ranks, rank, death);
            strncpy(job->seen[rank], seen.c_str(), sizeof job->seen[rank] - 1);
            _exit(0);
        }
        pids.push_back(pid);
    }
    if (death.inside) {
        wait_until(job->dying);
        kill(pids[1], SIGKILL);
    }
    waitpid(pids[1], nullptr, 0);
    job->dead.store(true, std::memory_order_release);
    std::vector<std::string> wrong;
    for (const int rank : {0, 2, 3}) {
        if (rank >= ranks) continue;
        int status = -1;
        waitpid(pids[size_t(rank)], &status, 0);
        wrong.push_back(status == 0 ? job->seen[rank] : "a rank died of status " + std::to_string(status));
    }
    munmap(job, sizeof(Job));
    return wrong;
}

}  // namespace

// Before the others: a child of a process that has used Weft cannot use it.
TEST_CASE("a rank that dies in an iteration is an error on the others that names it") {
    for (const Death& death : {Death{0, false, 0}, Death{0, true, 0}, Death{2, false, 0}, Death{3, false, 0},
                               Death{3, true, 0}, Death{1, true, 2}, Death{2, false, 2}}) {
        CAPTURE(death.step, death.inside, death.shard_ranks);
        const int ranks = death.shard_ranks > 0 ? 4 : 3;
        CHECK(on_processes(ranks, death) == std::vector<std::string>(size_t(ranks - 1)));
    }
}

TEST_CASE("a rank that cannot make the communicator of a group is an error on all ranks") {
    const auto wrong = on_threads(3, nullptr, [](weftComm_t comm, int rank) -> std::string {
        auto all = Peers::make(comm);
        if (!all) return all.status().text();
        // The negative size gives rank 1 no communicator in a split in which it takes part.
        const auto made = ShardGroups::make(std::move(*all), comm, 3, {rank == 1 ? -1 : 1, 3});
        if (made) return "no error";
        const bool names_it = rank == 1 ? made.status().id() == error::argument_communicator
                                        : made.status().id() == error::train_model && made.status().facts().rank == 1;
        return names_it ? "" : made.status().text();
    });
    CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("wrong arguments on one rank are an error on the others, and their communicator lives on") {
    using Change = void (*)(SmallUnits&);
    const std::pair<Change, const char*> changes[] = {
        {[](SmallUnits& s) { s.count = 0; }, "argument.value"},
        {[](SmallUnits& s) { s.units[1].name = nullptr; }, "argument.null"},
        {[](SmallUnits& s) { s.units[0].reshardRanks = 2; }, "argument.config"},
        {[](SmallUnits& s) { s.tensors[2].datatype = weftInt32; }, "argument.datatype"},
        {[](SmallUnits& s) { s.config.shardRanks = 2; }, "argument.config"},
        {[](SmallUnits& s) { s.config.magic = 0; }, "argument.config"}};
    const auto wrong = on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        for (const auto& [change, id] : changes)
            for (const int failing : {0, 1}) {
                SmallUnits small;
                if (rank == failing) change(small);
                weftTrainShard_t shard = nullptr;
                if (small.create(comm, &shard) == weftSuccess) return std::string("no error in place of ") + id;
                const weftErrorInfo_t info = last_error();
                if (info.id != std::string(rank == failing ? id : "train.model")) return text_of(weftInternalError);
                if (rank != failing && info.failedRank != failing) return "another rank is named";
                int one = 1;
                if (weftAllReduce(&one, &one, 1, weftInt32, weftSum, comm, nullptr) != weftSuccess || one != 3)
                    return "the communicator has ended";
            }
        return "";
    });
    CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("an abort by another thread ends a call in progress on all ranks") {
    for (const int step : {0, 1, 3}) {
        CAPTURE(step);
        std::atomic<bool> inside{false}, aborted{false};
        const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            SmallUnits small;
            weftTrainShard_t shard = nullptr;
            if (small.create(comm, &shard) != weftSuccess) return weftGetLastError(nullptr);
            (void)weftBarrier(comm, nullptr);
            std::thread aborts;
            if (rank == 0)
                aborts = std::thread([&] {
                    wait_until(inside);
                    (void)weftTrainShardAbort(shard);
                    aborted.store(true, std::memory_order_release);
                });
            // Rank 1 does not come to the step before rank 0's object is aborted.
            weftResult_t result = iterate(shard, [&](int next) {
                if (next != step) return;
                if (rank == 0)
                    inside.store(true, std::memory_order_release);
                else
                    wait_until(aborted);
            });
            if (aborts.joinable()) aborts.join();
            // The reductions may be complete before they are aborted, but the next iteration fails.
            if (result == weftSuccess && step == 3) result = weftTrainShardGather(shard, 0, nullptr);
            const std::string id = result == weftSuccess ? "none" : last_error().id;
            const bool right = rank == 0 ? result != weftSuccess : id == "abort.remote";
            (void)weftTrainShardDestroy(shard);
            return right ? "" : "the error is " + id;
        });
        CHECK(wrong == std::vector<std::string>(2));
    }
}
