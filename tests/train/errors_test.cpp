// Wrong use, different models, hooks that fail, and ranks that end: each is an error with an id, and no rank hangs.
#include <sys/wait.h>
#include <unistd.h>
#include <weft/train.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"
#include "tests/train/trained_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// The ids of all ranks' first errors in body(rank), by rank; each rank has a TrainedRank.
template <class Body>
std::vector<std::string> failures_of(int ranks, const weftTrainDdpConfig_t& config, Body&& body) {
    return on_threads(ranks, nullptr, [&](weftComm_t comm, int) {
        TrainedRank rank(comm, config);
        return rank.wrong().empty() ? std::string(body(rank)) : rank.wrong();
    });
}

// Whether the communicator still works after the training object has ended.
bool works(weftComm_t comm) {
    int one = 1, ranks = 0;
    return weftCommCount(comm, &ranks) == weftSuccess &&
           weftAllReduce(&one, &one, 1, weftInt32, weftSum, comm, nullptr) == weftSuccess && one == ranks;
}

// A model of one or two parameters.
struct Small {
    float values[8] = {};
    weftTrainTensor_t tensors[2] = {WEFT_TRAIN_TENSOR_INITIALIZER, WEFT_TRAIN_TENSOR_INITIALIZER};
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    size_t count = 2;

    Small() {
        for (int i = 0; i < 2; ++i) {
            tensors[i].name = i ? "bias" : "weight";
            tensors[i].data = values + 4 * i;
            tensors[i].count = 4;
        }
    }
    weftResult_t create(weftComm_t comm, weftTrainDdp_t* ddp) const {
        return weftTrainDdpCreate(ddp, comm, tensors, count, nullptr, 0, &config);
    }
};

weftResult_t failing_hook(const weftTrainBucket_t* bucket, void* context) {
    if (bucket->index == 1 && context) return weftInvalidArgument;
    return weftTrainHookAverage(bucket, nullptr);
}
weftResult_t throwing_hook(const weftTrainBucket_t*, void* context) {
    if (context) throw std::runtime_error("no such number");
    return weftSuccess;
}

}  // namespace

TEST_CASE("ranks with different models get one sentence that names the first difference and both ranks") {
    using Change = void (*)(Small&);
    const std::pair<Change, const char*> changes[] = {
        {[](Small& model) { model.tensors[1].name = "beta"; }, "parameter 1, \"beta\""},
        {[](Small& model) { model.tensors[0].count = 3; }, "parameter 0, \"weight\", with 3 elements"},
        {[](Small& model) { model.tensors[1].datatype = weftFloat16; }, "4 elements of half"},
        {[](Small& model) { model.count = 1; }, "nothing more"},
        {[](Small& model) { model.config.findUnused = 1; }, "findUnused 1"},
        {[](Small& model) { model.config.hook = weftTrainHookFloat16; }, "hook float16"},
        {[](Small& model) { model.config.bucketCapBytes = 5; }, "bucketCapBytes 5"},
    };
    for (const auto& each : changes) {
        const Change change = each.first;
        const std::string part = each.second;
        INFO(part);
        std::string sentences[3];
        const auto wrong = on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            Small model;
            if (rank == 2) change(model);
            weftTrainDdp_t ddp = nullptr;
            if (model.create(comm, &ddp) != weftMismatch || ddp) return "no mismatch";
            const weftErrorInfo_t info = last_error();
            sentences[rank] = weftGetLastError(nullptr);
            if (std::string(info.id) != "train.model" || info.failedRank != 2 || info.peer != 0) return "another error";
            return works(comm) ? "" : "the communicator is dead";
        });
        CHECK(wrong == std::vector<std::string>(3));
        CHECK(sentences[0] == sentences[1]);
        CHECK(sentences[0] == sentences[2]);
        CHECK(sentences[0].find("rank 2 has ") != std::string::npos);
        CHECK(sentences[0].find(part) != std::string::npos);
    }
}

TEST_CASE("wrong arguments of one rank are an error on all ranks, and their communicator lives on") {
    using Change = void (*)(Small&);
    const Change changes[] = {[](Small& model) { model.tensors[1].name = nullptr; },
                              [](Small& model) { model.tensors[0].size = size_t(1) << 40; },
                              [](Small& model) { model.config.join = 2; }};
    for (const Change change : changes) {
        std::string sentences[3];
        const auto wrong = on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            Small model;
            if (rank == 1) change(model);
            weftTrainDdp_t ddp = nullptr;
            const weftResult_t result = model.create(comm, &ddp);
            const weftErrorInfo_t info = last_error();
            sentences[rank] = weftGetLastError(nullptr);
            if (ddp || result != (rank == 1 ? weftInvalidArgument : weftMismatch)) return "another result";
            if (rank != 1 && (std::string(info.id) != "train.model" || info.failedRank != 1)) return info.id;
            return works(comm) ? "" : "the communicator is dead";
        });
        CHECK(wrong == std::vector<std::string>(3));
        CHECK(sentences[0] == sentences[2]);
        CHECK(sentences[0].find("rank 1 could not register its model: ") == 0);
    }
}

TEST_CASE("wrong arguments of weftTrainDdpCreate are errors on the rank alone") {
    const auto wrong = on_threads(1, nullptr, [&](weftComm_t comm, int) -> std::string {
        using Change = void (*)(Small&);
        const std::pair<Change, const char*> changes[] = {
            {[](Small& model) { model.count = 0; }, "argument.value"},
            {[](Small& model) { model.tensors[1].name = "weight"; }, "argument.value"},
            {[](Small& model) { model.tensors[1].name = nullptr; }, "argument.null"},
            {[](Small& model) { model.tensors[1].data = nullptr; }, "argument.null"},
            {[](Small& model) { model.tensors[1].datatype = weftInt32; }, "argument.datatype"},
            {[](Small& model) { model.tensors[1].datatype = weftDataType_t(99); }, "argument.datatype"},
            {[](Small& model) { model.tensors[1].count = SIZE_MAX; }, "argument.count"},
            {[](Small& model) { model.tensors[1].size = 0; }, "argument.config"},
            {[](Small& model) { model.tensors[0].size = 1; }, "argument.config"},
            {[](Small& model) { model.config.magic = 0; }, "argument.config"},
            {[](Small& model) { model.config.join = 2; }, "argument.config"},
            {[](Small& model) { model.config.divisor = weftTrainDivisor_t(7); }, "argument.config"},
        };
        for (const auto& [change, id] : changes) {
            Small model;
            change(model);
            weftTrainDdp_t ddp = nullptr;
            if (model.create(comm, &ddp) == weftSuccess || ddp || newest_id() != id)
                return std::string("not ") + id + ": " + weftGetLastError(nullptr);
        }
        Small model;
        weftTrainDdp_t ddp = nullptr;
        if (model.create(comm, nullptr) != weftInvalidArgument) return "no ddp";
        if (model.create(nullptr, &ddp) != weftInvalidArgument) return "no communicator";
        return works(comm) ? "" : "the communicator is dead";
    });
    CHECK(wrong[0] == "");
}

TEST_CASE("a wrong call in an iteration changes nothing, and the iteration ends well") {
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    const auto wrong = failures_of(2, config, [&](TrainedRank& rank) -> std::string {
        const weftTrainDdp_t ddp = rank.ddp();
        const auto fails = [&](weftResult_t result, const char* id, const char* part = "") {
            if (result == weftSuccess || newest_id() != id ||
                std::string(weftGetLastError(nullptr)).find(part) == std::string::npos)
                rank.complain(std::string("not ") + id + " " + part + ": " + weftGetLastError(nullptr));
        };
        int number = 0;
        void* memory = nullptr;
        fails(weftTrainDdpFinish(ddp, nullptr), "train.iteration");
        fails(weftTrainDdpGradientReady(ddp, 3, nullptr), "train.iteration", "layer3");
        const int several[] = {9, 3, 11};
        fails(weftTrainDdpGradientsReady(ddp, several, 2, nullptr), "train.iteration", "layer9");
        fails(weftTrainDdpGradientsReady(ddp, several, 3, nullptr), "argument.value");
        fails(weftTrainDdpGradientsReady(ddp, nullptr, 1, nullptr), "argument.null");
        rank.check(weftTrainDdpGradientsReady(ddp, nullptr, 0, nullptr));
        fails(weftTrainDdpJoin(ddp, nullptr), "train.iteration", "config.join");
        fails(weftTrainDdpBegin(ddp, weftTrainMode_t(5), nullptr), "argument.value");
        fails(weftTrainDdpBegin(ddp, weftTrainSynchronize, weftStream_t(&number)), "argument.stream");
        fails(weftTrainDdpGetGradient(ddp, 10, &memory), "argument.value");
        fails(weftTrainDdpGetGradient(ddp, -1, &memory), "argument.value");
        fails(weftTrainDdpGetGradient(ddp, 0, nullptr), "argument.null");
        fails(weftTrainDdpGetUsed(ddp, 10, &number), "argument.value");
        fails(weftTrainDdpGetBucket(ddp, 0, nullptr), "argument.null");
        rank.begin();
        fails(weftTrainDdpBegin(ddp, weftTrainSynchronize, nullptr), "train.iteration");
        fails(weftTrainDdpZeroGradients(ddp, nullptr), "train.iteration", "weftTrainDdpZeroGradients");
        fails(weftTrainDdpJoin(ddp, nullptr), "train.iteration");
        for (int p = 0; p < 10; ++p) {
            rank.compute(p, 0);
            if (p != 5 && p != 7 && p > 1) rank.ready(p);
        }
        const int three[] = {1, 0, 6};
        fails(weftTrainDdpGradientsReady(ddp, three, 3, nullptr), "train.reported-twice", "layer6");
        fails(weftTrainDdpGradientReady(ddp, 6, nullptr), "train.reported-twice", "layer6");
        fails(weftTrainDdpFinish(ddp, nullptr), "train.missing-gradient", "layer5");
        rank.check(weftGroupStart());
        fails(weftTrainDdpFinish(ddp, nullptr), "train.iteration", "group");
        rank.check(weftGroupEnd());
        std::thread([&] { rank.ready(5); }).join();
        rank.ready(7);
        rank.finish();
        weftResult_t state = weftInternalError;
        if (weftTrainDdpGetAsyncError(ddp, &state) != weftSuccess || state != weftSuccess) return "an error";
        fails(weftTrainDdpGetAsyncError(ddp, nullptr), "argument.null");
        rank.expect([](int p, size_t i) { return (gradient_element(0, 0, p, i) + gradient_element(1, 0, p, i)) / 2; },
                    "average");
        return rank.wrong();
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("a destroyed object and a NULL one are errors, also in a child after fork") {
    const auto wrong = on_threads(1, nullptr, [&](weftComm_t comm, int) -> std::string {
        weftTrainDdp_t ddp = nullptr;
        if (Small().create(comm, &ddp) != weftSuccess) return weftGetLastError(nullptr);
        const pid_t child = fork();
        if (child == 0) {
            const bool right = weftTrainDdpBegin(ddp, weftTrainSynchronize, nullptr) == weftInvalidUsage &&
                               newest_id() == "usage.forked" && weftTrainDdpDestroy(ddp) == weftInvalidUsage;
            _exit(right ? 0 : 1);
        }
        int status = -1;
        if (waitpid(child, &status, 0) != child || status != 0) return "the child is not content";
        if (weftTrainDdpDestroy(ddp) != weftSuccess) return weftGetLastError(nullptr);
        if (weftTrainDdpDestroy(ddp) != weftInvalidArgument || newest_id() != "argument.handle") return "twice";
        if (weftTrainDdpFinish(nullptr, nullptr) != weftInvalidArgument) return "NULL";
        weftTrainBucket_t bucket = {};
        void* scratch = nullptr;
        if (weftTrainHookAverage(&bucket, nullptr) != weftInvalidArgument) return "no bucket of a hook";
        if (weftTrainBucketScratch(nullptr, 1, &scratch) != weftInvalidArgument) return "no bucket";
        return weftTrainDdpDestroy(nullptr) == weftSuccess ? "" : "destroy NULL";
    });
    CHECK(wrong[0] == "");
}

TEST_CASE("a hook that fails on one rank is an error on all, and their communicator lives on") {
    for (const weftTrainHook_t hook : {failing_hook, throwing_hook}) {
        const auto wrong = on_threads(3, nullptr, [&](weftComm_t comm, int own) -> std::string {
            weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
            config.hook = hook == failing_hook ? failing_hook : throwing_hook;
            int context = 0;
            config.hookContext = own == 1 ? &context : nullptr;
            {
                TrainedRank rank(comm, config);
                rank.begin();
                rank.backward(0);  // it may see the failure of an earlier bucket
                const weftResult_t result = weftTrainDdpFinish(rank.ddp(), nullptr);
                const std::string id = newest_id();
                if (own == 1 && id != "train.hook") return weftGetLastError(nullptr);
                // The other hooks of the one that throws make no calls.
                if (own != 1 && hook == failing_hook && (result == weftSuccess || id != "abort.remote"))
                    return weftGetLastError(nullptr);
                if (own == 1 && weftTrainDdpBegin(rank.ddp(), weftTrainSynchronize, nullptr) != weftInvalidUsage)
                    return "it goes on";
            }
            return works(comm) ? "" : "the communicator is dead";
        });
        CHECK(wrong == std::vector<std::string>(3));
    }
}

TEST_CASE("a communicator that does not block is a parent like any other") {
    weftUniqueId id;
    REQUIRE(weftGetUniqueId(&id) == weftSuccess);
    std::string wrong[2];
    const auto run = [&](int own) {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.blocking = 0;
        weftComm_t comm = nullptr;
        weftResult_t state = weftCommInitRankConfig(&comm, 2, id, own, &config);
        while (state == weftInProgress) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (weftCommGetAsyncError(comm, &state) != weftSuccess) state = weftInternalError;
        }
        Small model;
        weftTrainDdp_t ddp = nullptr;
        if (state != weftSuccess || model.create(comm, &ddp) != weftSuccess ||
            weftTrainDdpBegin(ddp, weftTrainSynchronize, nullptr) != weftSuccess ||
            weftTrainDdpGradientReady(ddp, 0, nullptr) != weftSuccess ||
            weftTrainDdpGradientReady(ddp, 1, nullptr) != weftSuccess ||
            weftTrainDdpFinish(ddp, nullptr) != weftSuccess || weftTrainDdpDestroy(ddp) != weftSuccess)
            wrong[own] = std::string("failed: ") + weftGetLastError(nullptr);
        (void)weftCommDestroy(comm);
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    CHECK(wrong[0] == "");
    CHECK(wrong[1] == "");
}

TEST_CASE("with Join all ranks see that their modes differ") {
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    config.join = 1;
    const auto wrong = failures_of(3, config, [&](TrainedRank& rank) -> std::string {
        (void)weftTrainDdpBegin(rank.ddp(), rank.rank() == 2 ? weftTrainAccumulate : weftTrainSynchronize, nullptr);
        const weftErrorInfo_t info = last_error();
        return std::string(info.id) == "train.modes" && info.failedRank == 2 && info.peer == 0 ? "" : info.id;
    });
    CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("a rank that destroys its object in an iteration ends it on all ranks") {
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    const auto wrong = failures_of(3, config, [&](TrainedRank& rank) -> std::string {
        rank.begin();
        rank.backward(0);
        rank.finish();
        if (rank.rank() == 0) {
            rank.begin();
            return rank.wrong();
        }
        weftResult_t result = weftTrainDdpBegin(rank.ddp(), weftTrainSynchronize, nullptr);
        for (int p = 0; p < 10 && result == weftSuccess; ++p)
            result = weftTrainDdpGradientReady(rank.ddp(), p, nullptr);
        if (result == weftSuccess) result = weftTrainDdpFinish(rank.ddp(), nullptr);
        const weftErrorInfo_t info = last_error();
        if (result != weftRemoteError || std::string(info.id) != "abort.remote" || info.failedRank != 0) return info.id;
        weftResult_t state = weftSuccess;
        if (weftTrainDdpGetAsyncError(rank.ddp(), &state) != weftSuccess || state != weftRemoteError) return "state";
        // The error stays.
        return weftTrainDdpBegin(rank.ddp(), weftTrainSynchronize, nullptr) == weftRemoteError ? "" : "it goes on";
    });
    CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("weftTrainDdpAbort ends a waiting weftTrainDdpFinish of another thread, and the other ranks") {
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    config.broadcastBuffers = 0;  // weftTrainDdpBegin makes no call that the abort could end
    std::promise<void> ended;
    const auto wrong = failures_of(2, config, [&](TrainedRank& rank) -> std::string {
        rank.begin();
        if (rank.rank() == 0) {
            // It may come before, during or after the wait for rank 1, which finishes later.
            std::thread aborter([&] { rank.check(weftTrainDdpAbort(rank.ddp())); });
            weftResult_t result = weftSuccess;
            for (int p = 0; p < 10 && result == weftSuccess; ++p)
                result = weftTrainDdpGradientReady(rank.ddp(), p, nullptr);
            if (result == weftSuccess) result = weftTrainDdpFinish(rank.ddp(), nullptr);
            const std::string id = result == weftSuccess ? "no error" : newest_id();
            aborter.join();
            ended.set_value();
            if (id != "train.aborted") return id;
            if (weftTrainDdpBegin(rank.ddp(), weftTrainSynchronize, nullptr) == weftSuccess) return "it goes on";
            return newest_id() == "train.aborted" ? rank.wrong() : newest_id();
        }
        ended.get_future().wait();
        weftResult_t result = weftSuccess;
        for (int p = 0; p < 10 && result == weftSuccess; ++p)
            result = weftTrainDdpGradientReady(rank.ddp(), p, nullptr);
        if (result == weftSuccess) result = weftTrainDdpFinish(rank.ddp(), nullptr);
        return result == weftRemoteError && newest_id() == "abort.remote" ? "" : "no abort.remote";
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("a parent that does not block and fails to split says why") {
    weftUniqueId id;
    REQUIRE(weftGetUniqueId(&id) == weftSuccess);
    std::promise<void> tried;
    std::string wrong[2];
    const auto run = [&](int own) {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.blocking = 0;
        config.initTimeoutMs = 3000;
        weftComm_t comm = nullptr;
        weftResult_t state = weftCommInitRankConfig(&comm, 2, id, own, &config);
        while (state == weftInProgress) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (weftCommGetAsyncError(comm, &state) != weftSuccess) state = weftInternalError;
        }
        if (own == 0) {
            weftTrainDdp_t ddp = nullptr;
            if (state != weftSuccess || Small().create(comm, &ddp) == weftSuccess) wrong[0] = "a split with one rank";
            if (newest_id() == "internal.exception") wrong[0] = weftGetLastError(nullptr);
            tried.set_value();
        } else {
            if (state != weftSuccess) wrong[1] = weftGetLastError(nullptr);
            tried.get_future().wait();
        }
        (void)weftCommAbort(comm);
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    CHECK(wrong[0] == "");
    CHECK(wrong[1] == "");
}
