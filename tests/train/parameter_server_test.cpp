// The parameter server: wrong use, and ranks that fail.
#include <atomic>
#include <filesystem>
#include <latch>
#include <memory>
#include <thread>

#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"
#include "tests/subprocess.hpp"
#include "tests/train/served_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

weftResult_t failing_update(int parameter, void*, const void*, size_t, weftDataType_t, void*) {
    return parameter == 1 ? weftInvalidArgument : weftSuccess;
}
weftResult_t throwing_update(int, void*, const void*, size_t, weftDataType_t, void*) {
    throw std::runtime_error("no such number");
}

}  // namespace

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
