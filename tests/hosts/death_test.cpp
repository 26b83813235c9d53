// death_test.cpp: processes of several hosts that end, in any way and at any moment. Every survivor on every host gets
// an error that names them, and makes a new communicator.
#include <algorithm>
#include <random>

#include "tests/amount.hpp"
#include "tests/hosts/spread_job.hpp"

using namespace weft::internal::test;

namespace {

struct Scene {
    const char* what;
    bool during_init;
    const char* loop;
    const char* algo;
};

const Scene scenes[] = {
    {"init", true, "loop=10", ""},
    {"small calls", false, "loop=2", ""},
    {"large calls", false, "loop=1000000", ""},
    {"a ring", false, "loop=300000", "ring"},
};

// The steps of a survivor that goes on with the others in a new communicator.
void go_on(Steps& steps, const std::string& id, int rank, int ranks) {
    steps.insert(steps.end(),
                 {"async", "destroy", "id=" + id, "as=" + std::to_string(rank) + "," + std::to_string(ranks), "init",
                  "reduce=100000", "destroy"});
}

// Kills one rank of a new job after this delay. Returns the survivors' wrong output; `limit_ms` is how long they wait
// for each other.
std::string kill_in(const Scene& scene, int hosts, int per_host, int victim, int delay_us, int64_t limit_ms) {
    SpreadJob job(hosts, per_host);
    const int ranks = job.ranks();
    const std::string later = job.another_id();
    for (int rank = 0; rank < ranks; ++rank) {
        // A rank killed before it came is one that never comes: the deadline is for those.
        Steps steps{"say=started", scene.during_init ? "init=" + std::to_string(limit_ms) : "init", scene.loop};
        if (rank != victim) go_on(steps, later, rank - (rank > victim), ranks - 1);
        job.start(rank, steps, {std::string("WEFT_ALGO=") + scene.algo, quiet});
    }
    for (int rank = 0; rank < ranks; ++rank)
        if (!scene.during_init || rank == victim) CHECK(job[rank].says(scene.during_init ? "started" : "init 0"));
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    job.kill(victim);
    job.finish();
    return check_survivors(job, victim, scene.during_init, [&](const std::string& told) {
        return job.names(told, victim) ||
               (told.rfind("8 ", 0) == 0 && contains(told.substr(told.find(" for ")), std::to_string(victim)));
    });
}

}  // namespace

TEST_CASE("a rank killed at any moment is named on every host, and the survivors go on", "[death]") {
    std::mt19937 random(seed());
    for (int round = 0; round < (small() ? 1 : 2); ++round)
        for (const Scene& scene : scenes)
            for (const auto& [hosts, per_host] : {std::pair(2, 1), std::pair(2, 2), std::pair(3, 1)}) {
                if (small() && random() % 2 != 0) continue;
                const int ranks = hosts * per_host, victim = int(random() % unsigned(ranks)),
                          delay_us = int(random() % (scene.during_init ? 50'000 : 60'000));
                INFO(scene.what << ": rank " << victim << " of " << ranks << " on " << hosts << " hosts killed after "
                                << delay_us << " us; seed " << seed());
                CHECK(with_growing_limit(small() ? 10'000 : 2500,
                                         [&, hosts = hosts, per_host = per_host](int64_t limit_ms) {
                                             return kill_in(scene, hosts, per_host, victim, delay_us, limit_ms);
                                         }) == "");
            }
}

TEST_CASE("a leader or another rank that dies inside a call or outside is named on the other hosts", "[death]") {
    for (const bool leader : {true, false})
        for (const bool inside : {true, false}) {
            INFO((leader ? "leader, " : "guest, ") << (inside ? "inside a call" : "outside Weft"));
            SpreadJob job(2, 2);
            const std::string later = job.another_id();
            for (int rank = 0; rank < 4; ++rank) {
                Steps steps{"init", "reduce=10", "await", "say=on"};
                if (inside && rank != 3) steps.push_back("reduce=20");  // rank 3 keeps them all in there
                if (!inside || rank == 3) steps.insert(steps.end(), {"await", "reduce=20"});
                go_on(steps, later, rank, 4);
                job.start(rank, steps, telling);
            }
            for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says("reduce 0"));
            // Of the host without rank 3.
            const int head = job.leader_of(0), victim = leader ? head : 1 - head;
            for (int rank = 0; rank < 4; ++rank) job[rank].kill(SIGUSR1);
            for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says("on\n"));  // before the next signal
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            job.kill(victim);
            for (int rank = 0; rank < 4; ++rank) {
                if (rank == victim) continue;
                if (!inside || rank == 3) job[rank].kill(SIGUSR1);
                CHECK(job[rank].says("reduce 6 "));
                CHECK(job.names(job.answer(rank, "reduce"), victim));
                INFO(job[rank].output());
                CHECK(job[rank].says("async 6"));
            }
            // Another process takes its place.
            job.use_id(later);
            job.start(victim, {"init", "reduce=100000", "destroy"}, {quiet});
            job.finish();
            for (int process = 0; process < job.processes(); ++process)
                if (process != victim) CHECK(job.answer(process, "reduce") == "0");
        }
}

TEST_CASE("a rank that waits for connection info through a process that dies names that process", "[death]") {
    struct Way {
        const char *what, *first, *second;  // steps of the two ranks that connect
        bool leader_left = false, own_leader = false;
    };
    const Way ways[] = {
        {"a message", "send=10,2", "receive=10,1"},
        {"a put", "put=10,2", "wait=1"},
        {"a message, after the leader has left", "send=10,2", "receive=10,1", true},
        {"a message of a rank whose own leader dies", "receive=10,2", "send=10,1", false, true},
    };
    for (const Way& way : ways) {
        INFO(way.what);
        // Three hosts of a rank each, of which rank 0 joins the others, or ranks 2 and 3 on a host that rank 3 leads.
        SpreadJob job(way.own_leader ? 2 : 3, way.own_leader ? 2 : 1);
        const int victim = way.own_leader ? 3 : 0, others[] = {1, 2};
        const auto begin = [&](int rank, const char* step) {
            Steps steps{"init", "window", "reduce=1", "await", step, "async"};
            if (way.leader_left && rank == victim) steps = {"init", "window", "reduce=1", "destroy", "await"};
            job.start(rank, steps, telling);
        };
        // Processes are numbered as they start.
        std::vector<int> process(size_t(job.ranks()), -1);
        std::vector<int> order{victim};
        for (int rank = 0; rank < job.ranks(); ++rank)
            if (rank != victim) order.push_back(rank);
        for (const int rank : order) {
            process[size_t(rank)] = job.processes();
            begin(rank, rank == 1 ? way.first : rank == 2 ? way.second : "hold");
            if (rank == victim)
                REQUIRE(eventually([&] { return contains(job[0].error(), "this process leads the rendezvous"); }));
        }
        for (int each = 0; each < job.processes(); ++each) CHECK(job[each].says("reduce 0"));
        if (way.leader_left) CHECK(job[0].says("destroy 0"));
        job[0].kill(SIGSTOP);
        CHECK(eventually([&] { return process_state(job[0].pid()) == 'T'; }));
        for (const int rank : others) job[process[size_t(rank)]].kill(SIGUSR1);
        // Most often both have sent their connection info to the stopped process by then.
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        job.kill(0);
        for (const int rank : others) {
            const std::string step = rank == 1 ? way.first : way.second, call = step.substr(0, step.find('='));
            const int number = process[size_t(rank)];
            CHECK(job[number].says("async 6"));
            const Job::Error error = job.error(number, call);
            INFO("rank " << rank << ": " << job[number].output());
            CHECK(error.id == "host.lost");
            // Other hosts lose sight of all ranks of the host, and name the one that they wait for.
            CHECK(error.rank == (way.own_leader && rank == 1 ? 2 : victim));
        }
        for (int each = 1; each < job.processes(); ++each) job[each].kill(SIGKILL);
    }
}

TEST_CASE("after the death of one rank of every host at once the others get errors and live", "[death]") {
    for (const char* loop : {"loop=2", "loop=1000000"}) {
        SpreadJob job(3, 2);
        const std::string later = job.another_id();
        for (int rank = 0; rank < 6; ++rank) {
            Steps steps{"init", loop};
            if (rank % 2 == 0) go_on(steps, later, rank / 2, 3);
            job.start(rank, steps, {quiet});
        }
        for (int rank = 0; rank < 6; ++rank) CHECK(job[rank].says("init 0"));
        for (const int rank : {1, 3, 5}) job[rank].kill(SIGKILL);
        for (const int rank : {1, 3, 5}) job.kill(rank);
        job.finish();
        for (const int rank : {0, 2, 4}) {
            const std::string told = job.answer(rank, "loop");
            INFO(told);
            CHECK(told.rfind("6 ", 0) == 0);
            CHECK((job.names(told, 1) || job.names(told, 3) || job.names(told, 5)));
            CHECK(job.first_answer(rank, "async") == "6");
            CHECK(job.answer(rank, "reduce") == "0");
        }
    }
}

TEST_CASE("ranks that leave right after their last call do not disturb those of other hosts", "[death]") {
    for (const char* way : {"destroy", "exit", "vanish"})
        for (const Scene& scene : scenes) {
            if (scene.during_init) continue;
            INFO(scene.what << ", ended by " << way);
            SpreadJob job(2, 2);
            for (int rank = 0; rank < 4; ++rank) {
                const bool large = std::string(scene.loop).size() > 8;
                job.start(rank, {"init", std::string(scene.loop) + (large ? ",2" : ",200"), way},
                          {std::string("WEFT_ALGO=") + scene.algo, quiet});
            }
            job.finish();
            for (int rank = 0; rank < 4; ++rank) {
                INFO("rank " << rank << " said\n" << job[rank].output());
                CHECK(job.answer(rank, "loop") == "0");
            }
        }
}

TEST_CASE("hosts that leave at different times are no error to those that stay", "[death]") {
    for (int first = 0; first < 3; ++first) {
        INFO("host " << first << " leaves first");
        SpreadJob job(3, 2);
        for (int rank = 0; rank < 6; ++rank) {
            Steps steps{"init", "reduce=1000"};
            if (job.host_of(rank) != first) steps.insert(steps.end(), {"await", "async"});
            if (rank % 2 == 1) steps.push_back("sleep=50");
            steps.push_back("destroy");
            job.start(rank, steps, {quiet});
        }
        for (int rank = 0; rank < 6; ++rank) CHECK(job[rank].says("reduce 0"));
        job.finish(first * 2);
        job.finish(first * 2 + 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // so that the news are there
        for (int rank = 0; rank < 6; ++rank)
            if (job.host_of(rank) != first) job[rank].kill(SIGUSR1);
        job.finish();
        for (int rank = 0; rank < 6; ++rank) {
            INFO(job[rank].output());
            if (job.host_of(rank) != first) CHECK(job.answer(rank, "async") == "0");
            CHECK(job.answer(rank, "destroy") == "0");
        }
    }
}

TEST_CASE("a call after another host has left fails at once", "[death]") {
    // Also by the leader alone, whose host's other rank stays.
    for (int first = 0; first < 3; ++first)
        for (const bool whole : {true, false}) {
            INFO("of host " << first << (whole ? " both ranks leave" : " the leader leaves"));
            SpreadJob job(3, 2);
            for (int rank = 0; rank < 6; ++rank)
                job.start(rank, {"init", "reduce=1000", "await", "reduce=1000", "async", "destroy"}, telling);
            for (int rank = 0; rank < 6; ++rank) CHECK(job[rank].says("reduce 0"));
            const int leader = job.leader_of(first), guest = leader ^ 1;
            std::vector<int> leaving{leader};
            if (whole) leaving.push_back(guest);
            for (const int rank : leaving) {
                job[rank].kill(SIGUSR2);
                job.finish(rank);
                CHECK(job.answer(rank, "leave") == "0");
            }
            for (int rank = 0; rank < 6; ++rank)
                if (std::find(leaving.begin(), leaving.end(), rank) == leaving.end()) job[rank].kill(SIGUSR1);
            job.finish();
            for (int rank = 0; rank < 6; ++rank) {
                if (std::find(leaving.begin(), leaving.end(), rank) != leaving.end()) continue;
                INFO(job[rank].output());
                CHECK(job.answer(rank, "reduce").rfind("6 ", 0) == 0);
                CHECK(contains(job.answer(rank, "reduce"), "left the communicator after operation 1"));
                CHECK(job.answer(rank, "async") == "6");
            }
        }
}

TEST_CASE("an abort on one host ends the calls of all", "[death]") {
    for (const int aborting : {0, 1, 3}) {
        SpreadJob job(2, 2);
        for (int rank = 0; rank < 4; ++rank)
            if (rank == aborting)
                job.start(rank, {"init", "abort_on_signal", "loop=100000"}, {quiet});
            else
                job.start(rank, {"init", "say=in", "loop=100000", "async", "destroy"}, {quiet});
        for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says(rank == aborting ? "init 0" : "in\n"));
        job[aborting].kill(SIGUSR1);
        job.finish();
        CHECK(job.answer(aborting, "abort") == "0");
        for (int rank = 0; rank < 4; ++rank) {
            if (rank == aborting) continue;
            INFO(job.answer(rank, "loop"));
            CHECK(contains(job.answer(rank, "loop"), "rank " + std::to_string(aborting) + " aborted the communicator"));
            CHECK(job.answer(rank, "async") == "6");
        }
    }
}
