// Training calls on communicators with config.blocking 0: each call has ended when it returns.
#include <weft/train.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

namespace {

// A communicator whose calls go on in the background, and the first error of a rank.
class Rank {
  public:
    Rank(const weftUniqueId& id, int ranks, int rank) {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.blocking = 0;
        weftResult_t state = weftCommInitRankConfig(&comm, ranks, id, rank, &config);
        while (state == weftInProgress) {
            std::this_thread::yield();
            (void)weftCommGetAsyncError(comm, &state);
        }
        success(state, "weftCommInitRankConfig");
    }
    Rank(const Rank&) = delete;
    ~Rank() { (void)weftCommDestroy(comm); }

    void success(weftResult_t result, const char* call) {
        if (result != weftSuccess && wrong.empty()) wrong = std::string(call) + ": " + weftGetLastError(nullptr);
    }
    void ended(weftResult_t result, const char* call) {
        success(result, call);
        weftResult_t state = weftSuccess;
        (void)weftCommGetAsyncError(comm, &state);
        expect(state == weftSuccess, call);
    }
    void expect(bool right, const char* what) {
        if (!right && wrong.empty()) wrong = what;
    }

    weftComm_t comm = nullptr;
    std::string wrong;
};

template <class Body>
void on_ranks(Body&& body) {
    weftUniqueId id;
    REQUIRE(weftGetUniqueId(&id) == weftSuccess);
    std::vector<std::string> wrong(2);
    std::vector<std::thread> threads;
    for (const int own : {0, 1})
        threads.emplace_back([&, own] {
            Rank rank(id, 2, own);
            if (rank.wrong.empty()) body(rank, own);
            wrong[size_t(own)] = rank.wrong;
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong[0] == "");
    CHECK(wrong[1] == "");
}

weftTrainPart_t part_of(float* values, float* gradient) {
    weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
    part.name = "part";
    part.values = values;
    part.gradient = gradient;
    part.count = 2;
    part.axes = 1;
    return part;
}

}  // namespace

TEST_CASE("norms and loss scales end before they return") {
    on_ranks([](Rank& rank, int own) {
        float gradient[2] = {3, own == 0 ? 4.f : 0.f};
        const weftTrainPart_t part = part_of(nullptr, gradient);
        double norm = 0;
        rank.ended(weftTrainGradientNorm(&part, 1, &rank.comm, 1, 2, &norm, nullptr), "norm");
        rank.expect(std::fabs(norm - std::sqrt(34.0)) < 1e-6, "the norm");
        weftTrainScaler_t scaler = nullptr;
        rank.success(weftTrainScalerCreate(&scaler, &rank.comm, 1, nullptr), "scaler");
        gradient[0] = own == 0 ? INFINITY : 1;
        int found = 0;
        rank.ended(weftTrainScalerUnscale(scaler, &part, 1, 0, &found, nullptr), "unscale");
        rank.expect(found == 1, "the infinity of rank 0");
        (void)weftTrainScalerDestroy(scaler);
    });
}

TEST_CASE("steps with norms of layers end before they return") {
    for (const weftTrainAlgorithm_t algorithm : {weftTrainLamb, weftTrainLars})
        on_ranks([&](Rank& rank, int) {
            float values[2] = {1, 2}, gradient[2] = {1, 1};
            const weftTrainPart_t part = part_of(values, gradient);
            weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
            config.algorithm = algorithm;
            weftTrainOptimizer_t optimizer = nullptr;
            rank.success(weftTrainOptimizerCreate(&optimizer, &part, 1, &rank.comm, 1, &config), "optimizer");
            rank.ended(weftTrainOptimizerStep(optimizer, 0.1, 1, 0, nullptr), "step");
            rank.expect(values[0] < 1, "the values");
            (void)weftTrainOptimizerDestroy(optimizer);
        });
}

TEST_CASE("batch norm ends before it returns") {
    on_ranks([](Rank& rank, int own) {
        const float x[2] = {float(own), float(own + 2)};
        float mean = 0, invstd = 0, sums[2] = {};
        weftTrainBatchNorm_t layer = WEFT_TRAIN_BATCH_NORM_INITIALIZER;
        layer.batch = 2;
        rank.ended(weftTrainBatchNormForward(&layer, x, &mean, &invstd, nullptr, rank.comm, nullptr), "forward");
        rank.expect(mean == 1.5f, "the mean");
        rank.ended(weftTrainBatchNormBackward(&layer, x, x, &mean, nullptr, sums, rank.comm, nullptr), "backward");
        rank.expect(sums[0] == 6, "the sum");
    });
}

TEST_CASE("copies of states end before they return, and models can be made") {
    on_ranks([](Rank& rank, int own) {
        weftTrainReplica_t replica = nullptr;
        rank.success(weftTrainReplicaCreate(&replica, 1, 1), "replica");
        float values[2] = {float(own + 1), 5}, loaded[2] = {};
        size_t shape = 4, begin = size_t(2 * own), extent = 2;
        weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
        box.name = "part";
        box.data = values;
        box.datatype = weftFloat32;
        box.dims = 1;
        box.shape = &shape;
        box.offsets = &begin;
        box.extents = &extent;
        rank.ended(weftTrainReplicaSave(replica, rank.comm, 7, &box, 1, nullptr, 0), "save");
        box.data = loaded;
        uint64_t version = 0;
        rank.ended(weftTrainReplicaLoad(replica, rank.comm, &box, 1, &version), "load");
        rank.expect(version == 7 && loaded[0] == values[0] && loaded[1] == 5, "the copy");
        (void)weftTrainReplicaDestroy(replica);

        weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
        tensor.name = "weight";
        tensor.data = values;
        tensor.count = 2;
        weftTrainDdp_t ddp = nullptr;
        rank.success(weftTrainDdpCreate(&ddp, rank.comm, &tensor, 1, nullptr, 0, nullptr), "ddp");
        rank.expect(values[0] == 1, "the first values");
        rank.success(weftTrainDdpDestroy(ddp), "the end of ddp");
    });
}
