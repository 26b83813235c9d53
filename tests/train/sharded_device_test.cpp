// Sharded models on device memory, on the fake driver: ranks are threads, with a stream of the caller's each. The host
// reads what a stream has seen at the end of an iteration, so that only the streams order the work before.
#include <weft/train.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>

#include "tests/device/ranks.hpp"
#include "tests/train/trained_rank.hpp"

namespace weft::internal::test {

namespace {

struct Parameter {
    int unit;
    weftDataType_t type;
    size_t count, rows;
};
// float16 is divided in two steps.
constexpr Parameter model[] = {{0, weftFloat32, 33, 11}, {0, weftFloat32, 0, 0},     {1, weftFloat16, 65, 0},
                               {1, weftFloat32, 20, 5},  {2, weftBfloat16, 130, 13}, {3, weftFloat32, 7, 7}};
constexpr int parameters = int(std::size(model)), units = 4;

double value_of(int step, int p, size_t i) { return double((size_t(step) * 31 + size_t(p) * 7 + i * 3) % 101) - 50; }

// One rank. It throws errors.
class DeviceShard {
  public:
    DeviceShard(const Ranks& ranks, int rank, const weftTrainShardConfig_t& config)
        : rank_(rank),
          ranks_(ranks.count()),
          types_{config.parameterType, config.reduceType, config.outputType},
          host_shards_(config.shardsOnHost != 0),
          device_(ranks.placing[size_t(rank)]),
          current_(device_),
          stream_(*ranks.streams[size_t(rank)]) {
        weftTrainTensor_t tensors[parameters];
        weftTrainUnit_t entries[units];
        const char* const names[] = {"a", "b", "c", "d", "e", "f"};
        for (weftTrainUnit_t& unit : entries) unit = WEFT_TRAIN_UNIT_INITIALIZER;
        for (int p = 0; p < parameters; ++p) {
            std::vector<std::byte>& values = numbers(p, own_type(p), [&](size_t i) { return value_of(0, p, i); });
            weftTrainUnit_t& unit = entries[model[p].unit];
            tensors[p] = WEFT_TRAIN_TENSOR_INITIALIZER;
            tensors[p].name = names[p];
            tensors[p].data = rank == 0 ? values.data() : nullptr;
            tensors[p].count = model[p].count;
            tensors[p].rows = model[p].rows;
            tensors[p].datatype = own_type(p);
            if (unit.parameterCount++ == 0) unit.parameters = &tensors[p];
            unit.name = names[model[p].unit];
        }
        entries[3].reshardRanks = 1;
        demand(weftTrainShardCreate(&shard_, ranks.comms[size_t(rank)], entries, units, &config));
    }
    DeviceShard(const DeviceShard&) = delete;
    ~DeviceShard() { (void)weftTrainShardDestroy(shard_); }

    weftTrainShard_t shard() const { return shard_; }
    void forward(int step) {
        for (int unit = 0; unit < units; ++unit) {
            demand(weftTrainShardGather(shard_, unit, stream()));
            see_values(unit, step);
            demand(weftTrainShardRelease(shard_, unit, weftTrainForward, stream()));
        }
    }
    void backward(int step, int batch, weftTrainMode_t mode) {
        for (int unit = units - 1; unit >= 0; --unit) {
            demand(weftTrainShardGather(shard_, unit, stream()));
            see_values(unit, step);
            for (int p = 0; p < parameters; ++p) {
                void* memory = nullptr;
                if (model[p].unit != unit) continue;
                demand(weftTrainShardGetGradient(shard_, p, &memory));
                // The others are zeros.
                if (!writes(rank_, p)) continue;
                write(memory, numbers(p, whole_type(p), [&](size_t i) { return element(rank_, batch, p, i); }));
            }
            demand(weftTrainShardRelease(shard_, unit, weftTrainBackward, stream()));
            demand(weftTrainShardReduceScatter(shard_, unit, mode, stream()));
        }
    }
    // Ends an iteration, whose gradients are the average of the sums of batches 0 to `batches` - 1.
    void finish(int batches) {
        demand(weftTrainShardFinish(shard_, stream()));
        for (int p = 0; p < parameters; ++p) {
            const weftTrainPiece_t piece = this->piece(p);
            if (piece.count == 0) continue;
            if (!piece.gradient) throw std::runtime_error("no gradient");
            gradients_[p] = piece.gradient;
            const weftDataType_t type = or_else(types_.output, own_type(p));
            const double digits = std::max(digits_of(type), digits_of(or_else(types_.reduction, whole_type(p))));
            see(
                piece.gradient, p, type, digits, piece.count,
                [this, p, batches, begin = piece.begin](size_t i) {
                    double sum = 0;
                    for (int rank = 0; rank < ranks_; ++rank)
                        for (int batch = 0; batch < batches && writes(rank, p); ++batch)
                            sum += element(rank, batch, p, begin + i);
                    return sum / ranks_;
                },
                host_shards_);
        }
    }
    // By work on the stream, or of the host.
    void update(int step) {
        for (int p = 0; p < parameters; ++p) {
            const weftTrainPiece_t piece = this->piece(p);
            std::vector<std::byte>& all = numbers(p, own_type(p), [&](size_t i) { return value_of(step, p, i); });
            const size_t size = size_of(own_type(p));
            if (!host_shards_)
                copy(piece.values, all.data() + piece.begin * size, piece.count * size);
            else if (piece.count > 0)
                memcpy(piece.values, all.data() + piece.begin * size, piece.count * size);
        }
        zero();
    }
    // Of an iteration that reduces nothing the stream, or the host, reads zeros.
    void zero() {
        demand(weftTrainShardZeroGradients(shard_));
        demand(weftTrainShardFinish(shard_, stream()));
        for (const auto& [p, gradient] : gradients_)
            see(
                gradient, p, or_else(types_.output, own_type(p)), 0, piece(p).count, [](size_t) { return 0; },
                host_shards_);
        gradients_.clear();
    }
    // The stream's step reads a gradient after the call has returned only.
    void zero_before_step_runs() {
        const Seen last = seen_.back();  // of finish()
        CUdeviceptr kept = 0;
        demand(cuMemAlloc(&kept, last.bytes.size()));
        std::atomic<bool> go = false;
        const auto wait = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); };
        demand(cuLaunchHostFunc(stream_.handle, wait, &go));
        demand(cuMemcpyAsync(kept, CUdeviceptr(gradients_.at(last.parameter)), last.bytes.size(), stream_.handle));
        const weftResult_t zeroed = weftTrainShardZeroGradients(shard_);
        const weftResult_t finished = weftTrainShardFinish(shard_, stream());
        go = true;
        go.notify_all();
        demand(zeroed);
        demand(finished);
        see(reinterpret_cast<void*>(kept), last.parameter, last.type, last.digits,
            last.bytes.size() / size_of(last.type), last.expected);
        zero();
        compare();
        demand(cuMemFree(kept));
    }
    // Checks the numbers that the stream has seen.
    void compare() {
        stream_.finish();
        for (const Seen& seen : seen_)
            for (size_t i = 0; i < seen.bytes.size() / size_of(seen.type); ++i) {
                const double number = number_at(seen.bytes.data(), seen.type, i);
                if (std::abs(number - seen.expected(i)) > 400 * seen.digits)
                    throw std::runtime_error("element " + std::to_string(i) + " of parameter " +
                                             std::to_string(seen.parameter) + " is " + std::to_string(number) +
                                             ", not " + std::to_string(seen.expected(i)));
            }
        seen_.clear();
        sent_.clear();
    }

  private:
    struct Seen {
        int parameter;
        weftDataType_t type;
        double digits;
        std::vector<std::byte> bytes;
        std::function<double(size_t)> expected;
    };

    struct Types {
        weftDataType_t parameter, reduction, output;
    };

    static double digits_of(weftDataType_t type) {
        constexpr double digits[] = {0, 0, 0, 0, 0, 0, 0x1p-11, 0x1p-24, 0x1p-53, 0x1p-8};
        return digits[type];
    }
    static weftDataType_t or_else(weftDataType_t type, weftDataType_t other) {
        return type == weftNumTypes ? other : type;
    }
    // Models of mixed precision are float32.
    weftDataType_t own_type(int p) const { return types_.parameter == weftNumTypes ? model[p].type : weftFloat32; }
    weftDataType_t whole_type(int p) const { return or_else(types_.parameter, own_type(p)); }
    static bool writes(int rank, int p) { return p != 3 || rank == 0; }
    static double element(int rank, int batch, int p, size_t i) { return gradient_element(rank, batch, p, i); }
    weftStream_t stream() const { return stream_.weft(); }
    weftTrainPiece_t piece(int p) const {
        weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
        demand(weftTrainShardGetPiece(shard_, p, &piece));
        return piece;
    }
    // Of a parameter; valid until compare().
    template <class Number>
    std::vector<std::byte>& numbers(int p, weftDataType_t type, Number&& number) {
        std::vector<std::byte>& bytes = sent_.emplace_back(model[p].count * size_of(type));
        for (size_t i = 0; i < model[p].count; ++i) set_number(bytes.data(), type, i, number(i));
        return bytes;
    }
    void copy(void* to, const void* from, size_t bytes) {
        if (bytes > 0) demand(cuMemcpyAsync(CUdeviceptr(to), CUdeviceptr(from), bytes, stream_.handle));
    }
    void write(void* to, const std::vector<std::byte>& from) { copy(to, from.data(), from.size()); }
    void see(const void* from, int p, weftDataType_t type, double digits, size_t count,
             std::function<double(size_t)> expected, bool on_host = false) {
        Seen& seen = seen_.emplace_back();
        seen = {p, type, digits, std::vector<std::byte>(count * size_of(type)), std::move(expected)};
        if (on_host)
            memcpy(seen.bytes.data(), from, seen.bytes.size());
        else
            copy(seen.bytes.data(), from, seen.bytes.size());
    }
    void see_values(int unit, int step) {
        for (int p = 0; p < parameters; ++p) {
            void* memory = nullptr;
            if (model[p].unit != unit) continue;
            demand(weftTrainShardGetParameter(shard_, p, &memory));
            see(memory, p, whole_type(p), digits_of(whole_type(p)), model[p].count,
                [step, p](size_t i) { return value_of(step, p, i); });
        }
    }

    int rank_, ranks_;
    Types types_;
    bool host_shards_;
    int device_;
    Current current_;
    const Stream& stream_;
    std::deque<std::vector<std::byte>> sent_;  // until the stream has read them
    std::deque<Seen> seen_;
    std::map<int, void*> gradients_;  // of the last iteration
    weftTrainShard_t shard_ = nullptr;
};

weftTrainShardConfig_t on_device() {
    weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
    config.onDevice = 1;
    return config;
}

}  // namespace

TEST_CASE("sharded models on devices are trained in the order of the caller's stream", "[train]") {
    struct Form {
        int ranks;
        weftTrainSharding_t sharding;
        weftTrainStage_t stage;
        int shard_ranks;
        weftDataType_t parameter = weftNumTypes, reduction = weftNumTypes, output = weftNumTypes;
        int host_shards = 0, pool = 0;
    };
    constexpr weftDataType_t own = weftNumTypes;
    for (const Form& form :
         {Form{1, weftTrainShardFlat, weftTrainShardParameters, 0},
          Form{2, weftTrainShardRows, weftTrainShardParameters, 0},
          Form{3, weftTrainShardFlat, weftTrainShardParameters, 0},
          Form{2, weftTrainShardFlat, weftTrainShardOptimizer, 0},
          Form{4, weftTrainShardFlat, weftTrainShardGradients, 2},
          Form{2, weftTrainShardRows, weftTrainShardParameters, 0, weftBfloat16, weftFloat32},
          Form{3, weftTrainShardFlat, weftTrainShardGradients, 0, weftFloat16},
          Form{4, weftTrainShardFlat, weftTrainShardParameters, 2, weftBfloat16, weftFloat32, weftBfloat16},
          Form{3, weftTrainShardFlat, weftTrainShardParameters, 0, own, own, own, 1},
          Form{2, weftTrainShardRows, weftTrainShardOptimizer, 0, own, own, own, 1},
          Form{4, weftTrainShardFlat, weftTrainShardGradients, 2, own, own, own, 1},
          Form{2, weftTrainShardRows, weftTrainShardParameters, 0, weftBfloat16, weftFloat32, own, 1},
          Form{3, weftTrainShardFlat, weftTrainShardParameters, 0, own, own, own, 0, 1},
          Form{2, weftTrainShardRows, weftTrainShardOptimizer, 0, own, own, own, 0, 1},
          Form{4, weftTrainShardFlat, weftTrainShardGradients, 2, own, own, own, 1, 1}}) {
        CAPTURE(form.ranks, form.sharding, form.stage, form.parameter, form.reduction, form.output, form.host_shards,
                form.pool);
        const Ranks ranks(spread(form.ranks));
        check_on_threads(form.ranks, [&](int number) {
            weftTrainShardConfig_t config = on_device();
            config.shardsOnHost = form.host_shards;
            config.poolGradients = form.pool;
            config.sharding = form.sharding;
            config.stage = form.stage;
            config.shardRanks = form.shard_ranks;
            config.parameterType = form.parameter;
            config.reduceType = form.reduction;
            config.outputType = form.output;
            DeviceShard rank(ranks, number, config);
            for (int step = 0; step < 3; ++step) {
                for (int batch = 0; batch < 2; ++batch) {
                    rank.forward(step);
                    // With several copies the first batch stays a sum of each copy in one of the steps.
                    const bool partial = form.shard_ranks > 0 && step == 1 && batch == 0;
                    rank.backward(step, batch, partial ? weftTrainAccumulate : weftTrainSynchronize);
                }
                rank.finish(2);
                rank.update(step + 1);
                rank.compare();
            }
        });
        ranks.check_healthy();
    }
}

TEST_CASE("gradients on a device become zeros behind the step that reads them", "[train]") {
    const Ranks ranks(spread(1));
    check_on_threads(1, [&](int own) {
        DeviceShard rank(ranks, own, on_device());
        for (int step = 0; step < 3; ++step) {
            rank.forward(0);
            rank.backward(0, 0, weftTrainSynchronize);
            rank.finish(1);
            rank.zero_before_step_runs();
        }
    });
}

TEST_CASE("with poolGradients a device has the memory of whole gradients back between iterations", "[train]") {
    const Ranks ranks(spread(1));
    check_on_threads(1, [&](int own) {
        const auto free_bytes = [&] {
            size_t left = 0, total = 0;
            ranks.finish();
            demand(cuMemGetInfo(&left, &total));
            return left;
        };
        size_t between[2] = {};  // free, by poolGradients
        for (const int pool : {0, 1}) {
            weftTrainShardConfig_t config = on_device();
            config.poolGradients = pool;
            DeviceShard rank(ranks, own, config);
            size_t open = 0;
            for (int step = 0; step < 3; ++step) {
                rank.forward(step);
                rank.backward(step, 0, weftTrainSynchronize);
                open = free_bytes();
                rank.finish(1);
                between[pool] = free_bytes();
                if (pool ? between[pool] <= open : between[pool] != open) throw std::runtime_error("the free bytes");
                rank.update(step + 1);
                rank.compare();
            }
        }
        // Two whole gradients of the largest unit.
        CHECK(between[1] >= between[0] + 2 * 130 * 2);
    });
}

// The bytes of this rank's reduced gradients of float16 and float64, after one iteration.
static std::string reduced_gradients(const Ranks& ranks, int rank, bool on_device) {
    const Current current(ranks.placing[size_t(rank)]);
    const Stream& stream = *ranks.streams[size_t(rank)];
    const auto copy = [&](void* to, const void* from, size_t bytes) {
        if (on_device)
            demand(cuMemcpy(CUdeviceptr(to), CUdeviceptr(from), bytes));
        else
            memcpy(to, from, bytes);
    };
    constexpr size_t count = 999;
    constexpr weftDataType_t types[] = {weftFloat16, weftFloat64};
    const std::vector<double> values(count);
    weftTrainTensor_t tensors[] = {WEFT_TRAIN_TENSOR_INITIALIZER, WEFT_TRAIN_TENSOR_INITIALIZER};
    for (int p = 0; p < 2; ++p) {
        tensors[p].name = p == 0 ? "half" : "double";
        tensors[p].data = const_cast<double*>(values.data());
        tensors[p].count = count;
        tensors[p].datatype = types[p];
    }
    weftTrainUnit_t unit = WEFT_TRAIN_UNIT_INITIALIZER;
    unit.name = "unit";
    unit.parameters = tensors;
    unit.parameterCount = 2;
    weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
    config.onDevice = on_device ? 1 : 0;
    weftTrainShard_t shard = nullptr;
    demand(weftTrainShardCreate(&shard, ranks.comms[size_t(rank)], &unit, 1, &config));
    const weftStream_t own = on_device ? stream.weft() : nullptr;
    demand(weftTrainShardGather(shard, 0, own));
    for (int p = 0; p < 2; ++p) {
        std::vector<std::byte> numbers(count * size_of(types[p]));
        for (size_t i = 0; i < count; ++i) set_number(numbers.data(), types[p], i, double((i + size_t(rank)) % 1024));
        void* gradient = nullptr;
        demand(weftTrainShardGetGradient(shard, p, &gradient));
        stream.finish();
        copy(gradient, numbers.data(), numbers.size());
    }
    demand(weftTrainShardRelease(shard, 0, weftTrainBackward, own));
    demand(weftTrainShardReduceScatter(shard, 0, weftTrainSynchronize, own));
    demand(weftTrainShardFinish(shard, own));
    stream.finish();
    std::string bytes;
    for (int p = 0; p < 2; ++p) {
        weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
        demand(weftTrainShardGetPiece(shard, p, &piece));
        std::string part(piece.count * size_of(types[p]), '\0');
        if (piece.count > 0) copy(part.data(), piece.gradient, part.size());
        bytes += part;
    }
    demand(weftTrainShardDestroy(shard));
    return bytes;
}

TEST_CASE("float16 and float64 gradients on devices are divided with the bits of the host", "[train]") {
    const Ranks ranks(spread(3));  // divided by 2, and the sum by 1.5
    check_on_threads(3, [&](int rank) {
        const std::string device = reduced_gradients(ranks, rank, true), host = reduced_gradients(ranks, rank, false);
        if (device.empty() || device.find_first_not_of('\0') == device.npos) throw std::runtime_error("no gradients");
        if (device != host) throw std::runtime_error("other bits than the host's");
    });
}

TEST_CASE("other streams than a device's are refused by a sharded model", "[train]") {
    const Ranks ranks(spread(1));
    check_on_threads(1, [&](int own) {
        DeviceShard rank(ranks, own, on_device());
        weftHostStream_t host = nullptr;
        demand(weftStreamCreate(&host));
        CHECK(weftTrainShardGather(rank.shard(), 0, host) == weftInvalidArgument);
        CHECK_ERROR(last_error(), "argument.stream");
        demand(weftStreamDestroy(host));
        const Stream captured(0);
        demand(cuStreamBeginCapture(captured.handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK(weftTrainShardGather(rank.shard(), 0, captured.weft()) == weftInvalidUsage);
        CHECK_ERROR(last_error(), "stream.capture");
        CUgraph graph = nullptr;
        demand(cuStreamEndCapture(captured.handle, &graph));
        demand(cuGraphDestroy(graph));
        rank.forward(0);
        rank.backward(0, 0, weftTrainSynchronize);
        rank.finish(1);
        rank.compare();
    });
}

}  // namespace weft::internal::test
