// cause_test.cpp: one rank is killed, and the others exit at once when they get their error. Every rank names the rank
// that was killed, never one that exited because of an error.
#include <array>

#include "tests/faults/job.hpp"

using namespace weft::internal::test;

namespace {

// The processes that a sentence blames, as `(pid 77`: a rank that reports is named without its process.
std::set<pid_t> blamed(const std::string& sentence) {
    std::set<pid_t> pids;
    const std::string mark = "(pid ";
    for (size_t at = sentence.find(mark); at != std::string::npos; at = sentence.find(mark, at + 1))
        pids.insert(atoi(sentence.c_str() + at + mark.size()));
    return pids;
}

// Processes that keep the processors busy.
class Load {
  public:
    explicit Load(int loops) {
        for (int i = 0; i < loops; ++i)
            loops_.push_back(std::make_unique<Subprocess>(std::vector<std::string>{"sh", "-c", "while :; do :; done"}));
    }

  private:
    std::vector<std::unique_ptr<Subprocess>> loops_;
};

struct Ways {
    const char* what;
    std::vector<std::string> variables;
    int ranks_per_host;  // 0: one host
};
const Ways ways[] = {{"shm", {}, 0}, {"TCP on one host", {"WEFT_TRANSPORTS=tcp"}, 0}, {"several hosts", {}, 2}};

std::vector<std::string> variables_of(const Ways& way, int rank) {
    std::vector<std::string> variables = way.variables;
    variables.push_back(quiet);
    if (way.ranks_per_host > 0) variables.push_back("WEFT_HOSTID=node" + std::to_string(rank / way.ranks_per_host));
    return variables;
}

// How many ranks of a new job blame another rank than the one that is killed.
int wrong_culprits(const Ways& way, int ranks, int victim, int delay_us, const char* loop, const char* end) {
    Job job(ranks);
    for (int rank = 0; rank < ranks; ++rank) job.start(rank, {"init", loop, end}, variables_of(way, rank));
    for (int rank = 0; rank < ranks; ++rank) CHECK(job[rank].says("init 0"));
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    job.kill(victim);
    job.finish();
    int wrong = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        if (rank == victim) continue;
        const std::string told = job.answer(rank, "loop");
        if (told.rfind("6 ", 0) == 0 && blamed(told) == std::set<pid_t>{job[victim].pid()}) continue;
        ++wrong;
        UNSCOPED_INFO("rank " << rank << " (pid " << job[rank].pid() << ") said: " << told);
    }
    return wrong;
}

}  // namespace

// WEFT_TEST_KILLS: as many as tools/soak asks for.
TEST_CASE("ranks that exit as soon as they get an error are not blamed", "[cause]") {
    const char* given = std::getenv("WEFT_TEST_KILLS");
    const int kills = given ? atoi(given) : small() ? 12 : 30;
    std::mt19937 random(seed());
    const Load load(3);
    int wrong = 0, jobs = 0;
    for (int kill = 0; kill < kills; ++kill) {
        const Ways& way = ways[kill % 3];
        // Most of the few are small: a job of 12 ranks takes as long as four of 4.
        const int size = given           ? kill / 3 % 3
                         : kill % 10 < 7 ? 0
                         : kill % 10 < 9 ? 1
                                         : 2,
                  ranks = std::array{4, 7, 12}[size_t(size)], victim = int(random() % unsigned(ranks)),
                  delay_us = int(random() % 30'000);
        const char* loop = random() % 2 ? "loop=2" : "loop=100000";
        const char* end = random() % 4 ? "vanish" : "exit";
        INFO("seed " << seed() << ", kill " << kill << ": rank " << victim << " of " << ranks << ", " << way.what
                     << ", after " << delay_us << " us, " << loop << ", " << end);
        const int those = wrong_culprits(way, ranks, victim, delay_us, loop, end);
        CHECK(those == 0);
        wrong += those;
        ++jobs;
        if (given && (jobs % 50 == 0 || jobs == kills))
            printf("seed %u: %d kills, %d wrong culprits\n", seed(), jobs, wrong), fflush(stdout);
    }
}

// The order is forced: a stopped rank learns neither of the death nor of the others' errors until they have all exited.
TEST_CASE("a rank that hears late of a death names the rank that died, though others have exited since", "[cause]") {
    for (const Ways& way : ways)
        for (const int victim : {1, 3})
            for (const char* loop : {"loop=2", "loop=100000"}) {
                if (small() && (victim == 1) != (std::string(loop) == "loop=2")) continue;
                INFO(way.what << ", rank " << victim << " is killed, " << loop);
                const int late = 4;  // on no way to others, which could not hear of anything either
                Job job(5);
                for (int rank = 0; rank < 5; ++rank) job.start(rank, {"init", loop, "vanish"}, variables_of(way, rank));
                for (int rank = 0; rank < 5; ++rank) CHECK(job[rank].says("init 0"));
                job[late].kill(SIGSTOP);
                job.kill(victim);
                for (int rank = 0; rank < late; ++rank)
                    if (rank != victim) job.finish(rank);
                job[late].kill(SIGCONT);
                job.finish();
                for (int rank = 0; rank < 5; ++rank) {
                    if (rank == victim) continue;
                    INFO("rank " << rank << " (pid " << job[rank].pid() << ") said " << job.answer(rank, "loop"));
                    CHECK(job.answer(rank, "loop").rfind("6 ", 0) == 0);
                    CHECK(blamed(job.answer(rank, "loop")) == std::set<pid_t>{job[victim].pid()});
                }
            }
}

TEST_CASE("a rank that exits because a child failed is not blamed in the parent", "[cause]") {
    for (const Ways& way : ways) {
        INFO(way.what);
        Job job(4);
        for (int rank = 0; rank < 4; ++rank) {
            const std::string split = "split=" + std::to_string(rank % 2);
            Steps steps{"init", "loop=2,20", split};
            if (rank % 2 == 0) steps.push_back("back");
            steps.insert(steps.end(), {"loop=2", "vanish"});
            // Of several hosts a child has one.
            job.start(rank, steps, variables_of(way, rank % 2 * 2));
        }
        for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says("split 0"));
        for (const int rank : {0, 2}) job[rank].kill(SIGSTOP);
        job.kill(3);
        job.finish(1);
        for (const int rank : {0, 2}) job[rank].kill(SIGCONT);
        job.finish();
        for (const int rank : {0, 1, 2}) {
            INFO("rank " << rank << " (pid " << job[rank].pid() << ") said " << job.answer(rank, "loop"));
            CHECK(job.answer(rank, "loop").rfind("6 ", 0) == 0);
            CHECK(blamed(job.answer(rank, "loop")) == std::set<pid_t>{job[3].pid()});
        }
    }
}

TEST_CASE("a rank that exits or leaves because of another communicator is named with that one's failure", "[cause]") {
    for (const Ways& way : ways)
        for (const char* end : {"vanish", "leave"}) {
            if (small() && way.ranks_per_host > 0) continue;
            INFO(way.what << ", " << end);
            // Process 0 knows process 1 alone, which has another communicator with process 2.
            Job job(2);
            const std::string other = job.another_id();
            job.start(0, {"init", "loop=2", "vanish"}, variables_of(way, 0));
            Steps middle{"init", "id=" + other, "as=0,2", "init", "say=both", "loop=2"};
            if (std::string(end) == "leave") middle.push_back("destroy");
            middle.push_back(std::string(end) == "leave" ? "destroy_parent" : end);
            job.start(1, middle, variables_of(way, 2));
            job.start(1, {"id=" + other, "init", "loop=2"}, variables_of(way, 4));
            CHECK(job[1].says("both"));
            CHECK(job[2].says("init 0"));
            job[0].kill(SIGSTOP);
            job.kill(2);
            job.finish(1);
            job[0].kill(SIGCONT);
            job.finish();
            const std::string told = job.answer(0, "loop");
            INFO("process 1 (pid " << job[1].pid() << "), process 2 (pid " << job[2].pid() << "); told: " << told);
            CHECK(told.rfind("6 ", 0) == 0);
            CHECK(blamed(told).count(job[2].pid()) == 1);
        }
}
