// The sharded part of train.h as a client uses it: wrong arguments, states and handles, and memory that is counted.
#include <sys/stat.h>
#include <weft/train.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"
#include "tests/train/small_units.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// The id of an error that creation returns on one rank.
template <class Change>
std::string creation_error(Change&& change) {
    return on_threads(1, nullptr, [&](weftComm_t comm, int) -> std::string {
        SmallUnits small;
        change(small);
        weftTrainShard_t shard = nullptr;
        if (small.create(comm, &shard) == weftSuccess) {
            (void)weftTrainShardDestroy(shard);
            return "no error";
        }
        return last_error().id;
    })[0];
}

std::string error_of(weftResult_t result) { return result == weftSuccess ? "none" : last_error().id; }

}  // namespace

TEST_CASE("wrong units and settings are refused at creation") {
    CHECK(creation_error([](SmallUnits&) {}) == "no error");
    CHECK(creation_error([](SmallUnits& s) { s.count = 0; }) == "argument.value");
    CHECK(creation_error([](SmallUnits& s) { s.units[1].size = 0; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.units[0].size = s.units[1].size = size_t(1) << 40; }) ==
          "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.units[1].name = nullptr; }) == "argument.null");
    CHECK(creation_error([](SmallUnits& s) { s.units[1].name = "body"; }) == "argument.value");
    CHECK(creation_error([](SmallUnits& s) { s.units[1].parameterCount = 0; }) == "argument.null");
    CHECK(creation_error([](SmallUnits& s) { s.units[1].reshardRanks = -1; }) == "argument.value");
    CHECK(creation_error([](SmallUnits& s) { s.units[1].reshardRanks = 2; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.tensors[1].size = 0; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.tensors[2].name = "bias"; }) == "argument.value");
    CHECK(creation_error([](SmallUnits& s) { s.tensors[2].data = nullptr; }) == "argument.null");
    CHECK(creation_error([](SmallUnits& s) { s.tensors[2].rows = 3; }) == "argument.value");
    CHECK(creation_error([](SmallUnits& s) { s.tensors[2].gradient = s.values.data(); }) == "argument.value");
    CHECK(creation_error([](SmallUnits& s) { s.tensors[2].datatype = weftInt32; }) == "argument.datatype");
    CHECK(creation_error([](SmallUnits& s) { s.config.magic = 0; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.stage = weftTrainStage_t(4); }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.sharding = weftTrainSharding_t(2); }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.shardRanks = 2; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.divisor = -1; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.onDevice = 2; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.keepGradients = 2; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.overwriteGradients = 2; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.poolGradients = 1; }) == "argument.config");  // in host memory
    CHECK(creation_error([](SmallUnits& s) { s.config.parameterType = weftFloat64; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.gatherBits = 4; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.reduceBits = 1; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.blockCount = 0; }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) { s.config.gatherBits = 8, s.tensors[2].datatype = weftFloat64; }) ==
          "argument.config");
    CHECK(creation_error([](SmallUnits& s) {
              s.config.parameterType = weftFloat16, s.config.reduceType = weftBfloat16;
          }) == "argument.config");
    CHECK(creation_error([](SmallUnits& s) {
              s.tensors[0].datatype = weftFloat64;
              s.config.parameterType = weftBfloat16;
          }) == "argument.config");
    // A caller of the first version.
    CHECK(creation_error([](SmallUnits& s) { s.config.size = offsetof(weftTrainShardConfig_t, onDevice); }) ==
          "no error");
}

TEST_CASE("wrong calls are refused, and the iteration goes on") {
    for (const std::string& wrong : on_threads(2, nullptr, [](weftComm_t comm, int rank) -> std::string {
             SmallUnits small;
             if (rank == 1)
                 for (weftTrainTensor_t& tensor : small.tensors) tensor.data = nullptr;
             weftTrainShard_t shard = nullptr;
             if (small.create(comm, &shard) != weftSuccess) return std::string(weftGetLastError(nullptr));
             std::string seen;
             void* memory = nullptr;
             int stream = 0;
             weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
             weftTrainPiece_t none = {};
             weftTrainShardStats_t stats = {};
             int reduced = 1;
             if (weftTrainShardGetReduced(shard, &reduced) != weftSuccess || reduced) seen += "reduced at first; ";
             for (const weftResult_t result :
                  {weftTrainShardGather(shard, 2, nullptr), weftTrainShardGather(shard, -1, nullptr),
                   weftTrainShardRelease(shard, 2, weftTrainForward, nullptr),
                   weftTrainShardReduceScatter(shard, 2, weftTrainSynchronize, nullptr),
                   weftTrainShardGetParameter(shard, 3, &memory), weftTrainShardGetGradient(shard, -1, &memory),
                   weftTrainShardGetPiece(shard, 3, &piece), weftTrainShardGetPiece(shard, 0, &none),
                   weftTrainShardGetPiece(shard, 0, nullptr), weftTrainShardGetStats(shard, &stats),
                   weftTrainShardGather(shard, 0, reinterpret_cast<weftStream_t>(&stream)),
                   weftTrainShardRelease(shard, 0, weftTrainPass_t(2), nullptr),
                   weftTrainShardReduceScatter(shard, 0, weftTrainMode_t(2), nullptr)})
                 if (result != weftInvalidArgument) seen += "a wrong argument was accepted; ";
             if (error_of(weftTrainShardGetParameter(shard, 0, &memory)) != "train.unit") seen += "a released unit; ";
             if (error_of(weftTrainShardRelease(shard, 0, weftTrainForward, nullptr)) != "train.unit")
                 seen += "a release; ";
             for (int unit = 0; unit < 2; ++unit) {
                 if (weftTrainShardGather(shard, unit, nullptr) != weftSuccess)
                     seen += std::string(weftGetLastError(nullptr));
                 if (weftTrainShardGetParameter(shard, unit == 0 ? 1 : 2, &memory) != weftSuccess ||
                     static_cast<float*>(memory)[7] != 1)
                     seen += "another value; ";
                 if (error_of(weftTrainShardFinish(shard, nullptr)) != "train.unit") seen += "a gathered unit; ";
                 if (weftTrainShardRelease(shard, unit, weftTrainBackward, nullptr) != weftSuccess)
                     seen += std::string(weftGetLastError(nullptr));
                 if (error_of(weftTrainShardZeroGradients(shard)) != "train.iteration") seen += "an open iteration; ";
                 if (weftTrainShardReduceScatter(shard, unit, weftTrainSynchronize, nullptr) != weftSuccess)
                     seen += std::string(weftGetLastError(nullptr));
                 if (weftTrainShardGetPiece(shard, 2 * unit, &piece) != weftSuccess || piece.gradient)
                     seen += "a gradient in an iteration; ";
             }
             if (weftTrainShardFinish(shard, nullptr) != weftSuccess) seen += std::string(weftGetLastError(nullptr));
             if (weftTrainShardGetPiece(shard, 2, &piece) != weftSuccess || piece.count != 4 ||
                 piece.begin != size_t(rank) * 4 || !piece.gradient)
                 seen += "another piece; ";
             if (weftTrainShardGetReduced(shard, &reduced) != weftSuccess || !reduced) seen += "not reduced; ";
             if (weftTrainShardZeroGradients(shard) != weftSuccess ||
                 weftTrainShardGetReduced(shard, &reduced) != weftSuccess || reduced)
                 seen += "reduced after the gradients were zeroed; ";
             if (weftTrainShardDestroy(shard) != weftSuccess) seen += std::string(weftGetLastError(nullptr));
             if (error_of(weftTrainShardFinish(shard, nullptr)) != "argument.handle") seen += "a destroyed handle; ";
             return seen;
         }))
        CHECK(wrong == "");
    CHECK(weftTrainShardDestroy(nullptr) == weftSuccess);
    CHECK(error_of(weftTrainShardFinish(nullptr, nullptr)) == "argument.handle");
}

TEST_CASE("an abort from another rank or thread ends the iteration") {
    for (const std::string& wrong : on_threads(2, nullptr, [](weftComm_t comm, int rank) -> std::string {
             SmallUnits small;
             weftTrainShard_t shard = nullptr;
             if (small.create(comm, &shard) != weftSuccess) return std::string(weftGetLastError(nullptr));
             (void)weftBarrier(comm, nullptr);
             std::string seen;
             if (rank == 0 && weftTrainShardAbort(shard) != weftSuccess) seen = std::string(weftGetLastError(nullptr));
             const std::string id = error_of(weftTrainShardGather(shard, 0, nullptr));
             if (id != (rank == 0 ? "train.aborted" : "abort.remote")) seen += "the error is " + id;
             (void)weftTrainShardDestroy(shard);
             int one = 1;
             if (weftAllReduce(&one, &one, 1, weftInt32, weftSum, comm, nullptr) != weftSuccess || one != 2)
                 seen += "the caller's communicator has ended; ";
             return seen;
         }))
        CHECK(wrong == "");
}

namespace {

// Equal units of one parameter each.
struct EqualUnits {
    static constexpr size_t layer = 4096, layers = 8, layer_bytes = layer * sizeof(float), all = layers * layer_bytes;
    std::vector<float> values = std::vector<float>(layer, 1);
    std::vector<std::string> names;
    std::vector<weftTrainTensor_t> tensors = {layers, WEFT_TRAIN_TENSOR_INITIALIZER};
    std::vector<weftTrainUnit_t> units = {layers, WEFT_TRAIN_UNIT_INITIALIZER};

    EqualUnits() {
        for (size_t i = 0; i < layers; ++i) names.push_back("layer" + std::to_string(i));
        for (size_t i = 0; i < layers; ++i) {
            tensors[i].name = units[i].name = names[i].c_str();
            tensors[i].data = values.data();
            tensors[i].count = layer;
            units[i].parameters = &tensors[i];
            units[i].parameterCount = 1;
        }
    }
    EqualUnits(const EqualUnits&) = delete;
};

void check_memory(weftTrainShard_t shard, size_t shards, size_t wholes, const std::string& when, std::string& seen) {
    weftTrainShardStats_t stats = WEFT_TRAIN_SHARD_STATS_INITIALIZER;
    (void)weftTrainShardGetStats(shard, &stats);
    if (stats.shardBytes == shards && stats.wholeBytes == wholes) return;
    seen += when + ": " + std::to_string(stats.shardBytes) + " bytes of shards and not " + std::to_string(shards) +
            ", " + std::to_string(stats.wholeBytes) + " of wholes and not " + std::to_string(wholes) + "; ";
}

size_t most_memory(weftTrainShard_t shard) {
    weftTrainShardStats_t stats = WEFT_TRAIN_SHARD_STATS_INITIALIZER;
    (void)weftTrainShardGetStats(shard, &stats);
    return stats.mostBytes;
}

void forward(weftTrainShard_t shard) {
    for (int unit = 0; unit < int(EqualUnits::layers); ++unit) {
        (void)weftTrainShardGather(shard, unit, nullptr);
        (void)weftTrainShardRelease(shard, unit, weftTrainForward, nullptr);
    }
}

// Each unit's gradient is the iteration. Returns whether the zeros were there at first.
bool backward(weftTrainShard_t shard, float iteration) {
    bool zeros = true;
    for (int unit = int(EqualUnits::layers) - 1; unit >= 0; --unit) {
        void* gradient = nullptr;
        (void)weftTrainShardGather(shard, unit, nullptr);
        if (weftTrainShardGetGradient(shard, unit, &gradient) != weftSuccess) return false;
        float* const numbers = static_cast<float*>(gradient);
        zeros = zeros && std::count(numbers, numbers + EqualUnits::layer, 0.0f) == std::ptrdiff_t(EqualUnits::layer);
        std::fill_n(numbers, EqualUnits::layer, iteration);
        (void)weftTrainShardRelease(shard, unit, weftTrainBackward, nullptr);
        (void)weftTrainShardReduceScatter(shard, unit, weftTrainSynchronize, nullptr);
    }
    return weftTrainShardFinish(shard, nullptr) == weftSuccess && zeros;
}

// Bytes of pages of the memory that this process shares with peers: of all its ranks.
size_t shared_pages(weftComm_t comm) {
    (void)weftBarrier(comm, nullptr);
    size_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        if (std::filesystem::read_symlink(entry, gone).string().find("weft-arena") == std::string::npos) continue;
        struct stat facts {};
        if (stat(entry.path().c_str(), &facts) == 0) bytes = size_t(facts.st_blocks) * 512;
    }
    (void)weftBarrier(comm, nullptr);
    return bytes;
}

}  // namespace

TEST_CASE("memory shrinks from stage to stage, and gradients have none after they are zeroed") {
    for (const std::string& wrong : on_threads(4, nullptr, [](weftComm_t comm, int) -> std::string {
             const EqualUnits model;
             constexpr size_t shards = EqualUnits::all / 4, unit = EqualUnits::layer_bytes;
             std::string seen;
             for (int stage = 1; stage <= 3; ++stage) {
                 weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
                 config.stage = weftTrainStage_t(stage);
                 weftTrainShard_t shard = nullptr;
                 if (weftTrainShardCreate(&shard, comm, model.units.data(), model.units.size(), &config) != weftSuccess)
                     return std::string(weftGetLastError(nullptr));
                 const size_t wholes = stage < 3 ? EqualUnits::all : 2 * unit;
                 const std::string in_stage = " in stage " + std::to_string(stage);
                 for (int step = 1; step <= 2; ++step) {
                     forward(shard);
                     check_memory(shard, shards, wholes, "a forward pass" + in_stage, seen);
                     if (!backward(shard, float(step))) seen += "a gradient began with other numbers; ";
                     check_memory(shard, 2 * shards, wholes, "a step" + in_stage, seen);
                     (void)weftTrainShardZeroGradients(shard);
                 }
                 const size_t gradients = stage < 2 ? EqualUnits::all : 2 * unit;
                 if (most_memory(shard) != 2 * shards + wholes + gradients)
                     seen += std::to_string(most_memory(shard)) + " bytes at once" + in_stage + "; ";
                 (void)weftBarrier(comm, nullptr);
                 (void)weftTrainShardDestroy(shard);
             }
             return seen;
         }))
        CHECK(wrong == "");
}

TEST_CASE("with keepGradients the memory of gradients stays") {
    for (const std::string& wrong : on_threads(2, nullptr, [](weftComm_t comm, int) -> std::string {
             const EqualUnits model;
             weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
             config.keepGradients = 1;
             weftTrainShard_t shard = nullptr;
             if (weftTrainShardCreate(&shard, comm, model.units.data(), model.units.size(), &config) != weftSuccess)
                 return std::string(weftGetLastError(nullptr));
             std::string seen;
             constexpr size_t unit = EqualUnits::layer_bytes, wholes = 4 * unit + unit / 2;  // with a sum
             for (int step = 1; step <= 2; ++step) {
                 check_memory(shard, EqualUnits::all, wholes, "step " + std::to_string(step), seen);
                 forward(shard);
                 if (!backward(shard, float(step))) seen += "a gradient began with other numbers; ";
                 weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
                 (void)weftTrainShardGetPiece(shard, 3, &piece);
                 const auto* const numbers = static_cast<const float*>(piece.gradient);
                 if (numbers[5] != float(step)) seen += "another gradient; ";
                 (void)weftTrainShardZeroGradients(shard);
                 (void)weftTrainShardFinish(shard, nullptr);  // of an iteration that reduces nothing
                 for (size_t i = 0; i < piece.count; ++i)
                     if (numbers[i] != 0) seen += "no zeros where the gradient was; ", i = piece.count;
             }
             check_memory(shard, EqualUnits::all, wholes, "the end", seen);
             (void)weftBarrier(comm, nullptr);
             (void)weftTrainShardDestroy(shard);
             return seen;
         }))
        CHECK(wrong == "");
}

TEST_CASE("with overwriteGradients old numbers reach neither padding nor ranks without a gradient") {
    for (const std::string& wrong : on_threads(2, nullptr, [](weftComm_t comm, int rank) -> std::string {
             SmallUnits small;
             small.tensors[2].count = 5;
             small.config.overwriteGradients = small.config.keepGradients = 1;
             small.config.reduceBits = 8;  // a large number in the padding would round the gradient to zero
             weftTrainShard_t shard = nullptr;
             if (small.create(comm, &shard) != weftSuccess) return std::string(weftGetLastError(nullptr));
             const auto reduce = [&](int unit, int first_parameter, size_t count, float number) {
                 (void)weftTrainShardGather(shard, unit, nullptr);
                 void* gradient = nullptr;
                 if (number != 0) (void)weftTrainShardGetGradient(shard, first_parameter, &gradient);
                 if (gradient) std::fill_n(static_cast<float*>(gradient), count, number);
                 (void)weftTrainShardRelease(shard, unit, weftTrainBackward, nullptr);
                 (void)weftTrainShardReduceScatter(shard, unit, weftTrainSynchronize, nullptr);
                 return weftTrainShardFinish(shard, nullptr);
             };
             std::string seen;
             // Rank 1 has no gradient of the head in step 2.
             for (int step = 1; step <= 2; ++step) {
                 if (reduce(0, 0, 16, 1000) != weftSuccess ||
                     reduce(1, 2, 5, rank == 0 || step == 1 ? 1 : 0) != weftSuccess)
                     seen += std::string(weftGetLastError(nullptr));
                 weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
                 (void)weftTrainShardGetPiece(shard, 2, &piece);
                 for (size_t i = 0; i < piece.count; ++i)
                     if (static_cast<float*>(piece.gradient)[i] != (step == 1 ? 1.0f : 0.5f))
                         seen += std::to_string(static_cast<float*>(piece.gradient)[i]) + "; ";
                 (void)weftTrainShardZeroGradients(shard);
             }
             (void)weftBarrier(comm, nullptr);
             (void)weftTrainShardDestroy(shard);
             return seen;
         }))
        CHECK(wrong == "");
}

TEST_CASE("pages of gradients go back to the system, and their addresses stay") {
    for (const weftTrainSharding_t sharding : {weftTrainShardFlat, weftTrainShardRows})
        for (const std::string& wrong : on_threads(4, nullptr, [&](weftComm_t comm, int) -> std::string {
                 const EqualUnits model;
                 constexpr size_t shards = EqualUnits::all / 4, unit = EqualUnits::layer_bytes;
                 weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
                 config.sharding = sharding;
                 weftTrainShard_t shard = nullptr;
                 if (weftTrainShardCreate(&shard, comm, model.units.data(), model.units.size(), &config) != weftSuccess)
                     return std::string(weftGetLastError(nullptr));
                 std::string seen;
                 forward(shard);
                 // Three units; rank 0 has had a message with the first values beside the staging of rows.
                 if (most_memory(shard) > shards + (sharding == weftTrainShardRows ? 4 : 3) * unit)
                     seen += std::to_string(most_memory(shard)) + " bytes until the end of the forward pass; ";
                 check_memory(shard, shards, (sharding == weftTrainShardRows ? 3 : 2) * unit, "a forward pass", seen);
                 void* address = nullptr;
                 size_t before = 0;
                 for (int step = 1; step <= 3; ++step) {
                     if (step > 1) forward(shard);
                     (void)backward(shard, float(step));
                     weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
                     (void)weftTrainShardGetPiece(shard, 3, &piece);
                     if (static_cast<float*>(piece.gradient)[5] != float(step)) seen += "another gradient; ";
                     if (step > 1 && piece.gradient != address) seen += "another address; ";
                     address = piece.gradient;
                     const size_t reduced = shared_pages(comm);
                     (void)weftTrainShardZeroGradients(shard);
                     const size_t after = shared_pages(comm);
                     if (after != reduced - 4 * shards)
                         seen += std::to_string(reduced - after) + " bytes were given back; ";
                     if (step > 1 && after != before) seen += "another amount than in the step before; ";
                     before = after;
                     if (static_cast<float*>(address)[5] != 0) seen += "no zeros where the gradient was; ";
                     (void)weftTrainShardZeroGradients(shard);
                 }
                 // Two shards, four units: with sharding by rows one of them is the staging memory.
                 if (most_memory(shard) > 2 * shards + 4 * unit)
                     seen += std::to_string(most_memory(shard)) + " bytes at once; ";
                 (void)weftBarrier(comm, nullptr);
                 (void)weftTrainShardDestroy(shard);
                 return seen;
             }))
            CHECK(wrong == "");
}
