// The parameter server: against a plain reference, its bounds by recorded clocks, wrong use, and ranks that fail.
#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <latch>
#include <memory>
#include <thread>

#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"
#include "tests/subprocess.hpp"
#include "tests/train/local_ranks.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

weftTrainServerConfig_t server_config(int servers = 1, double rate = 1) {
    weftTrainServerConfig_t config = WEFT_TRAIN_SERVER_CONFIG_INITIALIZER;
    config.servers = servers;
    config.learningRate = rate;
    return config;
}

// A rank with gradients of its own.
struct ServedRank : LocalRank {
    std::vector<std::vector<std::byte>> gradients;
    weftTrainServer_t server = nullptr;
    std::string wrong;

    template <class Value>
    ServedRank(std::vector<std::pair<weftDataType_t, size_t>> parameters, Value&& value)
        : LocalRank(std::move(parameters), value), gradients(model.size()) {
        for (size_t p = 0; p < model.size(); ++p) {
            gradients[p].resize(model[p].second * 8);
            tensors[p].gradient = gradients[p].data();
        }
    }
    ~ServedRank() { (void)weftTrainServerDestroy(server); }
    ServedRank(const ServedRank&) = delete;

    bool check(weftResult_t result) {
        if (result != weftSuccess && wrong.empty()) wrong = weftGetLastError(nullptr);
        return result == weftSuccess;
    }
    bool create(weftComm_t comm, const weftTrainServerConfig_t& config) {
        // A rank that ends its object while others still make theirs would end those, too.
        return check(weftTrainServerCreate(&server, comm, tensors.data(), tensors.size(), &config)) &&
               check(weftBarrier(comm, nullptr));
    }
    bool serve() { return check(weftTrainServerServe(server)); }
    bool push() { return check(weftTrainServerPush(server, nullptr)); }
    bool pull() { return check(weftTrainServerPull(server, nullptr)); }
    bool finish() { return check(weftTrainServerFinish(server)); }
    weftTrainServerStats_t stats() {
        weftTrainServerStats_t stats = WEFT_TRAIN_SERVER_STATS_INITIALIZER;
        check(weftTrainServerGetStats(server, &stats));
        return stats;
    }
    template <class Value>
    void set_gradients(Value&& value) {
        each([&](size_t p, size_t i) { set_number(gradients[p].data(), model[p].first, i, value(p, i)); });
    }
    int owner(size_t p) {
        int rank = -1;
        check(weftTrainServerGetOwner(server, int(p), &rank));
        return rank;
    }
    // Complains unless each element of the parameters on `rank` is `expected(p, i)`; -1: of all parameters.
    template <class Expected>
    void expect(Expected&& expected, int rank = -1) {
        each([&](size_t p, size_t i) {
            if (rank >= 0 && owner(p) != rank) return;
            if (at(p, i) != expected(p, i) && wrong.empty())
                wrong = "element " + std::to_string(i) + " of parameter " + std::to_string(p) + " is " +
                        std::to_string(at(p, i)) + ", not " + std::to_string(expected(p, i));
        });
    }
};

double first_value(int p, size_t i) { return double(int(i % 7) - 3) + p; }
// -1, 0 or 1: sums of them are exact in every type.
double push_of(int rank, int step, size_t p, size_t i) {
    return double((uint64_t(rank) * 5 + uint64_t(step) * 7 + p * 3 + i * 11) % 3) - 1;
}

std::vector<std::string> no_error(int ranks) { return std::vector<std::string>(size_t(ranks)); }

}  // namespace

TEST_CASE("every push is applied exactly once, on any number of servers and workers") {
    constexpr int steps = 6;
    const std::pair<int, int> shapes[] = {{2, 1}, {3, 1}, {4, 1}, {3, 2}, {4, 2}, {4, 3}};
    for (const auto& [ranks, servers] : shapes) {
        INFO(ranks << " ranks, " << servers << " servers");
        const auto wrong = on_threads(ranks, nullptr, [ranks = ranks, servers = servers](weftComm_t comm, int rank) {
            ServedRank own(model_of_all_types(), [&](int p, size_t i) { return first_value(p, i) + 100 * rank; });
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
    const auto owners = on_threads(4, nullptr, [](weftComm_t comm, int rank) {
        ServedRank own(model_of_all_types(), first_value);
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
    const auto wrong = on_threads(2, nullptr, [](weftComm_t comm, int rank) {
        constexpr double rate = 0.3;
        ServedRank own({{weftFloat32, 33}, {weftFloat64, 5}}, first_value);
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
        const auto wrong = on_threads(ranks, nullptr, [&](weftComm_t comm, int rank) {
            ServedRank own({{weftFloat32, 3}}, first_value);
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
    const auto wrong = on_threads(4, nullptr, [&](weftComm_t comm, int rank) {
        ServedRank own(model_of_all_types(), first_value);
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
        const auto wrong = on_threads(4, nullptr, [&](weftComm_t comm, int rank) {
            ServedRank own({{weftFloat32, 5}, {weftFloat64, 3}}, first_value);
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
weftResult_t failing_update(int parameter, void*, const void*, size_t, weftDataType_t, void*) {
    return parameter == 1 ? weftInvalidArgument : weftSuccess;
}
weftResult_t throwing_update(int, void*, const void*, size_t, weftDataType_t, void*) {
    throw std::runtime_error("no such number");
}

}  // namespace

TEST_CASE("the caller's update gets each parameter that has elements") {
    std::atomic<int> calls{0};
    const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int rank) {
        ServedRank own(model_of_all_types(), first_value);
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

TEST_CASE("an update that fails ends the training on all ranks") {
    for (const weftTrainUpdate_t update : {failing_update, throwing_update}) {
        const auto ids = on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            ServedRank own({{weftFloat32, 3}, {weftFloat32, 2}}, first_value);
            weftTrainServerConfig_t config = server_config(1, 0);
            config.update = update;
            if (!own.create(comm, config)) return own.wrong;
            if (rank == 0) return own.serve() ? "no error" : last_error().id;
            if (own.push() && own.pull()) return "no error";
            return last_error().id;
        });
        CHECK(ids == std::vector<std::string>{"train.server-update", "train.server-ended", "train.server-ended"});
    }
}

TEST_CASE("a wait that is too long names the slowest worker on all ranks") {
    std::atomic<int> failed{0};
    const auto wrong = on_threads(4, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        ServedRank own({{weftFloat32, 3}}, first_value);
        weftTrainServerConfig_t config = server_config();
        config.staleness = 1;
        config.timeoutMs = 200;
        if (!own.create(comm, config)) return own.wrong;
        if (rank == 0) {
            if (own.serve()) return "no error";
        } else if (rank == 2) {
            // Its own calls fail as well, whenever it makes them.
            while (failed < 2) std::this_thread::yield();
            return own.push() && own.pull() ? "the slow worker goes on" : "";
        } else {
            own.push();
            own.pull();
            own.push();
            const bool pulled = own.pull();
            ++failed;
            if (pulled) return "no error";
        }
        const weftErrorInfo_t info = last_error();
        if (info.id != std::string("train.server-slow") || info.code != weftTimeout || info.failedRank != 2)
            return weftGetLastError(nullptr);
        const std::string sentence = weftGetLastError(nullptr);
        return sentence.find("rank 2, the slowest worker, which is at clock 0") == std::string::npos ? sentence : "";
    });
    CHECK(wrong == no_error(4));
}

TEST_CASE("a worker that gives up is an error at the server and at the other workers") {
    for (const bool aborts : {false, true}) {
        std::latch others_created(2);
        const auto wrong = on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            ServedRank own({{weftFloat32, 3}}, first_value);
            weftTrainServerConfig_t config = server_config();
            config.staleness = 0;
            const bool created = own.create(comm, config);
            if (rank != 1) others_created.count_down();
            if (!created) return own.wrong;
            if (rank == 1) {
                if (!own.push()) return own.wrong;
                others_created.wait();  // an abort would end their creation, too
                if (aborts && weftTrainServerAbort(own.server)) return weftGetLastError(nullptr);
                if (aborts && (own.pull() || last_error().id != std::string("train.aborted"))) return "it goes on";
                return "";
            }
            if (rank == 0 ? own.serve() : own.push() && own.pull() && own.push() && own.pull()) return "no error";
            const weftErrorInfo_t info = last_error();
            if (rank == 2 && info.id != std::string("train.server-ended")) return weftGetLastError(nullptr);
            return info.failedRank == 1 && info.code == weftRemoteError ? "" : weftGetLastError(nullptr);
        });
        CHECK(wrong == no_error(3));
    }
}

TEST_CASE("weftTrainServerAbort of another thread ends a server that serves") {
    std::atomic<bool> begun{false};
    std::atomic<weftTrainServer_t> serving{nullptr};
    const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        ServedRank own({{weftFloat32, 3}}, first_value);
        if (!own.create(comm, server_config())) return own.wrong;
        if (rank == 0) {
            serving = own.server;
            std::thread other([&] {
                while (!begun) std::this_thread::yield();
                (void)weftTrainServerAbort(serving);
            });
            const bool served = own.serve();
            const std::string id = last_error().id;
            other.join();
            return served || id != "train.aborted" ? "it goes on: " + id : "";
        }
        own.push();
        own.pull();
        begun = true;
        while (own.push() && own.pull()) continue;
        return last_error().failedRank == 0 ? "" : own.wrong;
    });
    CHECK(wrong == no_error(2));
}

TEST_CASE("wrong settings of a parameter server are errors with ids, and the communicator lives on") {
    using Change = void (*)(weftTrainServerConfig_t&);
    const Change changes[] = {
        [](weftTrainServerConfig_t& config) { config.servers = 0; },
        [](weftTrainServerConfig_t& config) { config.servers = 2; },
        [](weftTrainServerConfig_t& config) { config.accepted = 2; },
        [](weftTrainServerConfig_t& config) { config.accepted = -1; },
        [](weftTrainServerConfig_t& config) { config.accepted = 1, config.staleness = 3; },
        [](weftTrainServerConfig_t& config) { config.learningRate = 0; },
        [](weftTrainServerConfig_t& config) { config.learningRate = NAN; },
        [](weftTrainServerConfig_t& config) { config.timeoutMs = -1; },
        [](weftTrainServerConfig_t& config) { config.magic = 0; },
    };
    for (const Change change : changes) {
        const auto ids = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            ServedRank own({{weftFloat32, 3}}, first_value);
            weftTrainServerConfig_t config = server_config();
            if (rank == 1) change(config);
            if (own.create(comm, config)) return "no error";
            const std::string id = last_error().id;
            int one = 1;
            return weftAllReduce(&one, &one, 1, weftInt32, weftSum, comm, nullptr) ? "dead" : id;
        });
        CHECK(ids == std::vector<std::string>{"train.model", "argument.config"});
    }
    const auto sentences = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        ServedRank own({{weftFloat32, 3}}, first_value);
        weftTrainServerConfig_t config = server_config();
        config.staleness = uint64_t(3 + rank);
        return own.create(comm, config) ? "no error" : own.wrong;
    });
    CHECK(sentences[0] == sentences[1]);
    CHECK(sentences[0].find("staleness 4") != std::string::npos);
}

TEST_CASE("wrong calls of a parameter server change nothing") {
    const auto wrong = on_threads(2, nullptr, [](weftComm_t comm, int rank) -> std::string {
        ServedRank own({{weftFloat32, 3}, {weftFloat16, 2}}, first_value);
        weftTrainServerConfig_t config = server_config();
        config.accepted = 1;
        own.tensors[0].gradient = rank == 1 ? nullptr : own.tensors[0].gradient;
        weftTrainServer_t none = nullptr;
        if (!weftTrainServerCreate(&none, comm, own.tensors.data(), 2, &config)) return "no gradient";
        own.tensors[0].gradient = own.gradients[0].data();
        if (!own.create(comm, config)) return own.wrong;
        const auto refused = [&](weftResult_t result) {
            if (result != weftInvalidUsage) return std::string("no error");
            return std::string(last_error().id);
        };
        if (rank == 0) {
            if (refused(weftTrainServerPush(own.server, nullptr)) != "train.server-order") return "a server pushes";
            if (refused(weftTrainServerFinish(own.server)) != "train.server-order") return "a server finishes";
            own.serve();
            if (refused(weftTrainServerServe(own.server)) != "train.server-order") return "it serves twice";
            own.expect([](size_t p, size_t i) { return first_value(int(p), i) - 1; });
            return own.wrong;
        }
        if (refused(weftTrainServerServe(own.server)) != "train.server-order") return "a worker serves";
        own.set_gradients([](size_t, size_t i) { return i == 1 ? NAN : 1; });
        if (refused(weftTrainServerPush(own.server, nullptr)) != "train.server-gradient") return "NaN is pushed";
        own.set_gradients([](size_t, size_t) { return 1; });
        own.push();
        if (refused(weftTrainServerPush(own.server, nullptr)) != "train.server-order") return "two pushes in a step";
        own.pull();
        own.finish();
        own.finish();
        if (refused(weftTrainServerPull(own.server, nullptr)) != "train.server-order") return "a pull after the end";
        int owner = -1;
        if (weftTrainServerGetOwner(own.server, 2, &owner) != weftInvalidArgument) return "no such parameter";
        return own.wrong;
    });
    CHECK(wrong == no_error(2));
}

// Run by the next test, as a process for each rank.
TEST_CASE("a rank of a job whose rank 1 dies", "[.][process]") {
    weftComm_t comm = nullptr;
    REQUIRE(weftCommInitFromEnvironment(&comm, nullptr) == weftSuccess);
    int rank = -1;
    REQUIRE(weftCommUserRank(comm, &rank) == weftSuccess);
    ServedRank own({{weftFloat32, 3}}, first_value);
    weftTrainServerConfig_t config = server_config();
    config.staleness = 0;
    REQUIRE(own.create(comm, config));
    if (rank == 1) {
        own.push();
        raise(SIGKILL);
    }
    const bool fine = rank == 0 ? own.serve() : own.push() && own.pull() && own.push() && own.pull();
    REQUIRE_FALSE(fine);
    CHECK(last_error().failedRank == 1);
    CHECK(last_error().id == std::string(rank == 0 ? "rank.died" : "train.server-ended"));
}

TEST_CASE("a worker that dies is an error at the server and at the other workers") {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    std::vector<std::unique_ptr<Subprocess>> ranks;
    weftUniqueId id;
    REQUIRE(weftGetUniqueId(&id) == weftSuccess);
    std::string text;
    for (const char byte : id.internal) text += fmt::format("{:02x}", uint8_t(byte));
    for (int rank = 0; rank < 3; ++rank)
        ranks.push_back(std::make_unique<Subprocess>(
            std::vector<std::string>{self, "a rank of a job whose rank 1 dies"},
            std::vector<std::string>{"WEFT_RANK=" + std::to_string(rank), "WEFT_SIZE=3", "WEFT_UNIQUE_ID=" + text}));
    for (const int rank : {0, 2}) {
        const int status = ranks[size_t(rank)]->wait();
        INFO(ranks[size_t(rank)]->output() << ranks[size_t(rank)]->error());
        CHECK(status == 0);
    }
}
