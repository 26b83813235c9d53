// Models on devices whose shards lie in host memory, on the fake driver: bit for bit as models in host memory. The host
// reads gradients and changes values as soon as an iteration has ended.
#include <weft/train.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <latch>
#include <random>

#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"
#include "tests/folder.hpp"
#include "tests/train/small_units.hpp"
#include "tests/train/trained_rank.hpp"

namespace weft::internal::test {

namespace {

struct Parameter {
    int unit;
    size_t count, rows;
};
constexpr Parameter model[] = {{0, 33, 11}, {0, 0, 0}, {1, 65, 0}, {1, 20, 5}, {2, 130, 13}, {3, 7, 7}};
constexpr int parameters = int(std::size(model)), units = 4;

struct Form {
    int ranks;
    weftTrainSharding_t sharding = weftTrainShardFlat;
    weftTrainStage_t stage = weftTrainShardParameters;
    int shard_ranks = 0;
    weftDataType_t parameter = weftNumTypes, reduction = weftNumTypes, output = weftNumTypes;
    double divisor = 0;
    int gather_bits = 0, reduce_bits = 0;

    weftTrainShardConfig_t config(bool on_device) const {
        weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
        config.sharding = sharding;
        config.stage = stage;
        config.shardRanks = shard_ranks;
        config.parameterType = parameter;
        config.reduceType = reduction;
        config.outputType = output;
        config.divisor = divisor;
        config.gatherBits = gather_bits;
        config.reduceBits = reduce_bits;
        config.blockCount = 10;
        config.onDevice = on_device ? 1 : 0;
        config.shardsOnHost = 1;  // no setting for the model in host memory
        return config;
    }
};

// One rank of a model, and its optimizer in host memory. It throws errors.
class Trained {
  public:
    Trained(const Ranks& ranks, int rank, const Form& form, bool on_device, float first = 1)
        : form_(form),
          on_device_(on_device),
          comm_(ranks.comms[size_t(rank)]),
          stream_(*ranks.streams[size_t(rank)]),
          current_(ranks.placing[size_t(rank)]),
          random_(seed() + uint32_t(rank)) {
        weftTrainTensor_t tensors[parameters];
        weftTrainUnit_t entries[units];
        for (weftTrainUnit_t& unit : entries) unit = WEFT_TRAIN_UNIT_INITIALIZER;
        std::vector<float> values(130);
        for (size_t i = 0; i < values.size(); ++i) values[i] = first + float(i) / 7;
        for (int p = 0; p < parameters; ++p) {
            weftTrainUnit_t& unit = entries[model[p].unit];
            tensors[p] = WEFT_TRAIN_TENSOR_INITIALIZER;
            tensors[p].name = names[p];
            tensors[p].data = values.data();
            tensors[p].count = model[p].count;
            tensors[p].rows = model[p].rows;
            if (unit.parameterCount++ == 0) unit.parameters = &tensors[p];
            unit.name = names[model[p].unit];
        }
        if (form.ranks == 4 && form.shard_ranks == 0) entries[1].reshardRanks = 2;
        entries[3].reshardRanks = 1;
        const weftTrainShardConfig_t config = form.config(on_device);
        demand(weftTrainShardCreate(&shard_, comm_, entries, units, &config));
        demand(weftTrainScalerCreate(&scaler_, &comm_, 1, nullptr));
    }
    Trained(const Trained&) = delete;
    ~Trained() {
        (void)weftTrainScalerDestroy(scaler_);
        (void)weftTrainOptimizerDestroy(optimizer_);
        (void)weftTrainShardDestroy(shard_);
    }

    weftTrainShard_t shard() const { return shard_; }
    void iteration() {
        for (int batch = 0; batch < 2; ++batch) {
            const bool partial = form_.shard_ranks > 0 && batch == 0;
            pass(weftTrainForward, weftTrainSynchronize);
            pass(weftTrainBackward, partial ? weftTrainAccumulate : weftTrainSynchronize);
        }
        demand(weftTrainShardFinish(shard_, stream()));
    }
    // Unscales and clips the gradients, and returns their norm.
    double step() {
        std::vector<weftTrainPart_t> parts;
        for (int p = 0; p < parameters; ++p) {
            const weftTrainPiece_t piece = this->piece(p);
            weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
            part.name = names[p];
            part.values = static_cast<float*>(piece.values);
            part.gradient = piece.gradient;
            part.count = piece.count;
            part.gradientType = form_.output == weftNumTypes ? weftFloat32 : form_.output;
            part.axes = 1;
            parts.push_back(part);
        }
        int found = 0;
        demand(weftTrainScalerUnscale(scaler_, parts.data(), parameters, 0, &found, nullptr));
        double norm = 0;
        demand(weftTrainGradientNorm(parts.data(), parameters, &comm_, 1, 2, &norm, nullptr));
        demand(weftTrainClipGradients(parts.data(), parameters, norm, norm / 2, 1, nullptr));
        if (!optimizer_) {
            weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
            config.algorithm = weftTrainLamb;
            config.shard = shard_;
            demand(weftTrainOptimizerCreate(&optimizer_, parts.data(), parameters, &comm_, 1, &config));
        }
        demand(weftTrainOptimizerStep(optimizer_, 0.05, 1, 0, nullptr));
        demand(weftTrainShardZeroGradients(shard_));
        return norm;
    }
    // The bytes of this rank's values, which the host can read.
    std::string values() const {
        std::string bytes;
        for (int p = 0; p < parameters; ++p) {
            const weftTrainPiece_t piece = this->piece(p);
            if (piece.count > 0) bytes.append(static_cast<const char*>(piece.values), piece.count * sizeof(float));
        }
        return bytes;
    }
    weftTrainShardStats_t stats() const {
        weftTrainShardStats_t stats = WEFT_TRAIN_SHARD_STATS_INITIALIZER;
        demand(weftTrainShardGetStats(shard_, &stats));
        return stats;
    }
    std::vector<weftTrainBox_t> boxes() const {
        std::vector<weftTrainBox_t> boxes(parameters, WEFT_TRAIN_BOX_INITIALIZER);
        for (int p = 0; p < parameters; ++p) demand(weftTrainShardGetBox(shard_, p, &boxes[size_t(p)]));
        return boxes;
    }
    // Up to and without its end.
    void open_iteration() {
        pass(weftTrainForward, weftTrainSynchronize);
        pass(weftTrainBackward, weftTrainSynchronize);
    }
    weftStream_t stream() const { return on_device_ ? stream_.weft() : nullptr; }

  private:
    static constexpr const char* names[] = {"a", "b", "c", "d", "e", "f"};

    weftDataType_t whole_type() const { return form_.parameter == weftNumTypes ? weftFloat32 : form_.parameter; }
    weftTrainPiece_t piece(int p) const {
        weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
        demand(weftTrainShardGetPiece(shard_, p, &piece));
        return piece;
    }
    void copy(void* to, const void* from, size_t bytes) const {
        if (on_device_ && bytes > 0)
            demand(cuMemcpyAsync(CUdeviceptr(to), CUdeviceptr(from), bytes, stream_.handle));
        else if (bytes > 0)
            memcpy(to, from, bytes);
    }
    void pass(weftTrainPass_t pass, weftTrainMode_t mode) {
        const bool backward = pass == weftTrainBackward;
        for (int k = 0; k < units; ++k) {
            const int unit = backward ? units - 1 - k : k;
            demand(weftTrainShardGather(shard_, unit, stream()));
            for (int p = 0; p < parameters && backward; ++p)
                if (model[p].unit == unit) write_gradient(p);
            demand(weftTrainShardRelease(shard_, unit, pass, stream()));
            if (backward) demand(weftTrainShardReduceScatter(shard_, unit, mode, stream()));
        }
    }
    // Random numbers that depend on the values, too.
    void write_gradient(int p) {
        const size_t count = model[p].count, bytes = count * size_of(whole_type());
        void *whole = nullptr, *gradient = nullptr;
        demand(weftTrainShardGetParameter(shard_, p, &whole));
        demand(weftTrainShardGetGradient(shard_, p, &gradient));
        std::vector<std::byte> values(bytes);
        copy(values.data(), whole, bytes);
        if (on_device_) stream_.finish();
        std::vector<std::byte>& numbers = sent_.emplace_back(bytes);
        for (size_t i = 0; i < count; ++i)
            set_number(numbers.data(), whole_type(), i,
                       std::ldexp(double(random_()), -31) - 1 + number_at(values.data(), whole_type(), i) / 8);
        copy(gradient, numbers.data(), bytes);
    }

    Form form_;
    bool on_device_;
    weftComm_t comm_;
    const Stream& stream_;
    Current current_;
    std::mt19937 random_;
    std::deque<std::vector<std::byte>> sent_;  // until the stream has read them
    weftTrainShard_t shard_ = nullptr;
    weftTrainOptimizer_t optimizer_ = nullptr;
    weftTrainScaler_t scaler_ = nullptr;
};

void check(bool right, const char* sentence) {
    if (!right) throw std::runtime_error(sentence);
}

}  // namespace

TEST_CASE("a model on a device with shards in host memory has the bits of one in host memory", "[train]") {
    constexpr weftDataType_t own = weftNumTypes;
    std::mt19937 random(seed());
    for (const Form& form :
         {Form{1}, Form{2}, Form{2, weftTrainShardRows, weftTrainShardParameters, 0, weftBfloat16, weftFloat32},
          Form{2, weftTrainShardFlat, weftTrainShardOptimizer, 0, weftFloat16, weftNumTypes, weftFloat16},
          Form{2, weftTrainShardFlat, weftTrainShardGradients, 0, weftNumTypes, weftNumTypes, weftBfloat16, 3},
          Form{4, weftTrainShardFlat, weftTrainShardParameters, 2},
          Form{4, weftTrainShardRows, weftTrainShardParameters, 2, weftBfloat16, weftFloat32},
          Form{3, weftTrainShardFlat, weftTrainShardParameters, 0, own, own, own, 0, 8, 4},
          Form{2, weftTrainShardRows, weftTrainShardGradients, 0, weftBfloat16, own, own, 3, 8, 8},
          // Sums in the order of the ranks, which exact ones of more than two do not have.
          Form{4, weftTrainShardFlat, weftTrainShardParameters, 0, own, own, own, 0, 8, 8},
          Form{4, weftTrainShardFlat, weftTrainShardParameters, 2, own, weftBfloat16, own, 0, 0, 4}}) {
        if (small() && random() % 2 != 0) continue;
        CAPTURE(form.ranks, form.sharding, form.stage, form.parameter, form.reduction, form.output, form.gather_bits,
                form.reduce_bits);
        const Ranks ranks(spread(form.ranks));
        check_on_threads(form.ranks, [&](int number) {
            Trained device(ranks, number, form, true), host(ranks, number, form, false);
            check(device.values() == host.values(), "the first values differ");
            for (int step = 0; step < 3; ++step) {
                for (Trained* each : {&device, &host}) each->iteration();
                check(device.step() == host.step(), "the norms differ");
                check(device.values() == host.values(), "the values differ");
            }
            const weftTrainShardStats_t stats = device.stats(), all = host.stats();
            // Sums of a copy of the model, and parts of a reshard group, stay on the device.
            check(form.ranks == 4 ? stats.hostBytes < stats.shardBytes : stats.hostBytes == stats.shardBytes,
                  "other bytes of host memory");
            check(stats.hostBytes > 0 && all.hostBytes == all.shardBytes, "other bytes in a model in host memory");
        });
        ranks.check_healthy();
    }
}

TEST_CASE("shards in host memory are saved and loaded as a checkpoint", "[train]") {
    const Folder folder;
    const Ranks ranks(spread(2));
    const Form form{2};
    check_on_threads(2, [&](int own) {
        Trained saved(ranks, own, form, true);
        saved.iteration();
        saved.step();
        Trained loaded(ranks, own, form, true, 100);
        check(saved.values() != loaded.values(), "the models are equal before the load");
        weftTrainCheckpoint_t checkpoint = nullptr;
        demand(weftTrainCheckpointCreate(&checkpoint, ranks.comms[size_t(own)]));
        const std::string path = (folder.path / "step").string();
        const auto from = saved.boxes(), to = loaded.boxes();
        demand(weftTrainCheckpointSave(checkpoint, path.c_str(), from.data(), from.size(), nullptr, 0,
                                       weftTrainSaveBlocking));
        demand(weftTrainCheckpointLoad(checkpoint, path.c_str(), to.data(), to.size()));
        check(saved.values() == loaded.values(), "the checkpoint has other values");
        // The next gather has the values that were loaded.
        for (Trained* each : {&saved, &loaded}) each->iteration();
        // It waits for the kernels of all devices of this process, which wait for other ranks before.
        demand(weftTrainCheckpointDestroy(checkpoint));
    });
}

TEST_CASE("an iteration whose gradients cannot arrive in host memory ends with an error", "[train]") {
    const Ranks ranks(spread(2));
    std::latch rank_0_stepped(1);
    check_on_threads(2, [&](int own) {
        Trained rank(ranks, own, Form{2}, true);
        rank.iteration();
        rank.step();
        if (own == 0) rank_0_stepped.count_down();
        if (own == 1) {
            demand(weftTrainShardGather(rank.shard(), 0, rank.stream()));
            rank_0_stepped.wait();  // an abort would end that iteration, too
            demand(weftTrainShardAbort(rank.shard()));
            return;
        }
        weftResult_t result = weftSuccess;
        try {
            rank.open_iteration();
            result = weftTrainShardFinish(rank.shard(), rank.stream());
        } catch (const std::exception&) {
            result = weftRemoteError;  // an earlier call has heard of it
        }
        check(result == weftRemoteError, "no error");
    });
}

TEST_CASE("a rank without pinned memory is an error on all ranks, and their communicator lives on", "[train]") {
    const Ranks ranks(spread(2));
    std::string ids[2];
    fake::add_setting("fault cuMemHostAlloc 1 2");
    check_on_threads(2, [&](int own) {
        const Current current(ranks.placing[size_t(own)]);
        SmallUnits small;
        small.config.onDevice = small.config.shardsOnHost = 1;
        weftTrainShard_t shard = nullptr;
        if (small.create(ranks.comms[size_t(own)], &shard) != weftSuccess) ids[own] = last_error().id;
        check(!shard, "an object was made");
    });
    // Either rank may be the one.
    CHECK((ids[0] == "train.model") != (ids[1] == "train.model"));
    CHECK((ids[0] == "cuda.resources" || ids[1] == "cuda.resources"));
    check_on_threads(2, [&](int own) { Trained(ranks, own, Form{2}, true).iteration(); });
}

TEST_CASE("shards in host memory need a device only where the model lies on one", "[train]") {
    const Ranks ranks(spread(1));
    SmallUnits small;
    weftTrainShard_t shard = nullptr;
    small.config.shardsOnHost = 2;
    CHECK_REFUSED(small.create(ranks.comms[0], &shard), nullptr, "argument.config");
    small.config.shardsOnHost = 1;
    demand(small.create(ranks.comms[0], &shard));
    demand(weftTrainShardDestroy(shard));
    small.config.onDevice = 1;
    small.config.reduceBits = 4;
    small.config.blockCount = 3;
    CHECK_REFUSED(small.create(ranks.comms[0], &shard), nullptr, "argument.config");
}

}  // namespace weft::internal::test
