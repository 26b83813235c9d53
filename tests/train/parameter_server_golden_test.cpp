// The parameter server against a plain reference, and its bounds by recorded clocks. In host memory or on devices, as the
// program has it.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "tests/error.hpp"
#include "tests/train/served_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

TEST_CASE("every push is applied exactly once, on any number of servers and workers") {
    constexpr int steps = 6;
    const std::pair<int, int> shapes[] = {{2, 1}, {3, 1}, {4, 1}, {3, 2}, {4, 2}, {4, 3}};
    for (const auto& [ranks, servers] : shapes) {
        if (is_left_out(ranks)) continue;
        INFO(ranks << " ranks, " << servers << " servers");
        const auto wrong = in_program_memory(ranks, [ranks = ranks, servers = servers](weftComm_t comm, int rank) {
            ServedRank own(model_of_all_types(), [&](int p, size_t i) { return first_value(p, i) + 100 * rank; });
            if (program_has_devices) own.place(rank);
            if (!own.create(comm, server_config(servers))) return own.wrong;
            const auto total = [&](size_t p, size_t i) {
                double sum = first_value(int(p), i);
                for (int worker = servers; worker < ranks; ++worker)
                    for (int step = 0; step < steps; ++step) sum -= push_of(worker, step, p, i);
                return sum;
            };
            if (rank < servers) {
                own.serve();
                own.expect(total, rank);
                const weftTrainServerStats_t stats = own.stats();
                if (stats.applied != uint64_t(steps * (ranks - servers)) || stats.dropped != 0)
                    own.wrong = "the counters";
            } else {
                for (int step = 0; step < steps; ++step) {
                    own.set_gradients([&](size_t p, size_t i) { return push_of(rank, step, p, i); });
                    own.push();
                    if (step % 2 == rank % 2) own.pull();
                }
                if (ranks - servers == 1) {
                    own.pull();
                    own.expect(total);
                }
                own.finish();
                if (own.stats().applied != steps) own.wrong = "the pushes";
            }
            return own.wrong;
        });
        CHECK(wrong == no_error(ranks));
    }
}

TEST_CASE("keys are spread over all servers, and all ranks know the owners") {
    const auto owners = in_program_memory(4, [](weftComm_t comm, int rank) {
        ServedRank own(model_of_all_types(), first_value);
        if (program_has_devices) own.place(rank);
        if (!own.create(comm, server_config(2))) return own.wrong;
        std::string text;
        for (size_t p = 0; p < own.model.size(); ++p) text += std::to_string(own.owner(p));
        rank < 2 ? own.serve() : own.finish();
        return own.wrong + text;
    });
    CHECK(owners == std::vector<std::string>(4, owners[0]));
    CHECK(owners[0].find('0') != std::string::npos);
    CHECK(owners[0].find('1') != std::string::npos);
}

TEST_CASE("one worker's SGD equals a plain loop to the bit") {
    const auto wrong = in_program_memory(2, [](weftComm_t comm, int rank) {
        constexpr double rate = 0.3;
        ServedRank own({{weftFloat32, 33}, {weftFloat64, 5}}, first_value);
        if (program_has_devices) own.place(rank);
        if (!own.create(comm, server_config(1, rate))) return own.wrong;
        if (rank == 0) {
            own.serve();
            return own.wrong;
        }
        ServedRank plain({{weftFloat32, 33}, {weftFloat64, 5}}, first_value);
        for (int step = 0; step < 5; ++step) {
            const auto gradient = [&](size_t p, size_t i) { return 0.1 * push_of(1, step, p, i) + own.at(p, i) / 3; };
            own.set_gradients(gradient);
            plain.each([&](size_t p, size_t i) {
                const double sent = number_at(own.gradients[p].data(), own.model[p].first, i);
                const double next = own.model[p].first == weftFloat64
                                        ? plain.at(p, i) - rate * sent
                                        : float(plain.at(p, i)) - float(rate) * float(sent);
                plain.set(p, i, next);
            });
            own.push();
            own.pull();
            own.expect([&](size_t p, size_t i) { return plain.at(p, i); });
        }
        own.finish();
        return own.wrong;
    });
    CHECK(wrong == no_error(2));
}

TEST_CASE("no worker is further ahead than the staleness bound, and may be as far as that") {
    constexpr int ranks = 4, steps = 12;
    for (const uint64_t bound : {0, 1, 3}) {
        std::array<std::atomic<uint64_t>, ranks> begun{};  // pushes of each rank
        std::atomic<uint64_t> fast{0};                     // pulls of rank 1
        const auto wrong = in_program_memory(ranks, [&](weftComm_t comm, int rank) {
            ServedRank own({{weftFloat32, 3}}, first_value);
            if (program_has_devices) own.place(rank);
            weftTrainServerConfig_t config = server_config();
            config.staleness = bound;
            if (!own.create(comm, config)) return own.wrong;
            if (rank == 0) {
                own.serve();
                if (own.stats().largestLead != bound)
                    own.wrong = "the lead is " + std::to_string(own.stats().largestLead);
                return own.wrong;
            }
            // Rank 1 can make `bound` steps before rank 2 makes any.
            if (rank == 2)
                while (fast < bound && own.wrong.empty()) std::this_thread::yield();
            for (uint64_t step = 1; step <= steps && own.wrong.empty(); ++step) {
                begun[size_t(rank)] = step;
                own.push();
                own.pull();
                if (rank == 1) ++fast;
                uint64_t slowest = UINT64_MAX;
                for (int worker = 1; worker < ranks; ++worker)
                    slowest = std::min(slowest, begun[size_t(worker)].load());
                if (step > slowest + bound) own.wrong = "a worker was too far ahead";
                if (step > own.stats().slowestClock + bound) own.wrong = "the server saw it too far ahead";
            }
            if (own.wrong.empty()) own.finish();
            return own.wrong;
        });
        INFO(bound);
        CHECK(wrong == no_error(ranks));
    }
}

TEST_CASE("a step takes the first gradients and drops the late ones by their step") {
    std::atomic<int> stepped{0}, finished{0};  // workers 1 and 2
    const auto wait_for = [](const std::atomic<int>& count, const std::string& wrong) {
        while (count < 2 && wrong.empty()) std::this_thread::yield();
    };
    const auto wrong = in_program_memory(4, [&](weftComm_t comm, int rank) {
        ServedRank own(model_of_all_types(), first_value);
        if (program_has_devices) own.place(rank);
        weftTrainServerConfig_t config = server_config();
        config.accepted = 2;
        if (!own.create(comm, config)) return own.wrong;
        if (rank == 0) {
            own.serve();
            const weftTrainServerStats_t stats = own.stats();
            if (stats.steps != 3 || stats.applied != 5 || stats.dropped != 1) own.wrong += " the counters";
            own.expect([](size_t p, size_t i) { return first_value(int(p), i) - 1.5 - 1.5 - 8; });
            return own.wrong;
        }
        own.set_gradients([&](size_t, size_t) { return rank == 3 ? 8 : rank; });  // the mean of 1 and 2 is 1.5
        if (rank < 3) {
            for (int step = 1; step <= 2; ++step) {
                own.push();
                own.pull();
                own.expect([&](size_t p, size_t i) { return first_value(int(p), i) - 1.5 * step; });
            }
            ++stepped;
            wait_for(stepped, own.wrong);
            own.finish();
            ++finished;
            return own.wrong;
        }
        wait_for(stepped, own.wrong);
        own.push();  // of step 0: dropped
        own.pull();
        own.expect([&](size_t p, size_t i) { return first_value(int(p), i) - 3; });
        wait_for(finished, own.wrong);
        own.push();  // alone: the others have finished
        own.pull();
        own.expect([&](size_t p, size_t i) { return first_value(int(p), i) - 11; });
        own.finish();
        return own.wrong;
    });
    CHECK(wrong == no_error(4));
}

TEST_CASE("asynchronous SGD reaches the minimum of a quadratic") {
    for (const int accepted : {0, 2}) {
        const auto wrong = in_program_memory(4, [&](weftComm_t comm, int rank) {
            ServedRank own({{weftFloat32, 5}, {weftFloat64, 3}}, first_value);
            if (program_has_devices) own.place(rank);
            weftTrainServerConfig_t config = server_config(1, 0.05);
            config.accepted = accepted;
            if (accepted == 0) config.staleness = 2;
            if (!own.create(comm, config)) return own.wrong;
            if (rank == 0) {
                own.serve();
                own.each([&](size_t p, size_t i) {
                    if (std::fabs(own.at(p, i) - 4) > 0.01) own.wrong = std::to_string(own.at(p, i));
                });
                return own.wrong;
            }
            for (int step = 0; step < 200 && own.wrong.empty(); ++step) {
                own.set_gradients([&](size_t p, size_t i) { return own.at(p, i) - 4; });
                own.push();
                own.pull();
            }
            own.finish();
            return own.wrong;
        });
        CHECK(wrong == no_error(4));
    }
}

namespace {

weftResult_t add_half(int parameter, void* values, const void* gradient, size_t count, weftDataType_t type,
                      void* context) {
    for (size_t i = 0; i < count; ++i)
        set_number(values, type, i, number_at(values, type, i) + number_at(gradient, type, i) / 2 + parameter);
    ++*static_cast<std::atomic<int>*>(context);
    return weftSuccess;
}

}  // namespace

TEST_CASE("the caller's update gets each parameter that has elements") {
    std::atomic<int> calls{0};
    const auto wrong = in_program_memory(2, [&](weftComm_t comm, int rank) {
        ServedRank own(model_of_all_types(), first_value);
        if (program_has_devices) own.place(rank);
        weftTrainServerConfig_t config = server_config(1, 0);
        config.update = add_half;
        config.updateContext = &calls;
        if (!own.create(comm, config)) return own.wrong;
        if (rank == 0) {
            own.serve();
            return own.wrong;
        }
        own.set_gradients([](size_t, size_t) { return 2; });
        own.push();
        own.pull();
        own.expect([](size_t p, size_t i) { return first_value(int(p), i) + 1 + double(p); });
        own.finish();
        return own.wrong;
    });
    CHECK(wrong == no_error(2));
    CHECK(calls == 9);  // one of the ten parameters is empty
}
