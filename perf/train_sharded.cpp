#include "train_sharded.hpp"

#include <fmt/format.h>
#include <weft/train.h>

#include <vector>

#include "train_measure.hpp"

namespace perf {
namespace {

constexpr int units = 8;

struct Memory {
    bool keeps_gradients = false;
    bool overwrites_gradients = false;
};

// Units of one float32 parameter each. Thread-bound.
class Units {
  public:
    // `count` elements, which the ranks divide.
    Units(Rank& rank, size_t count, const Memory& memory) : rank_(rank), count_(count) {
        std::vector<float> values(rank.is_first() ? count : 0);
        std::vector<weftTrainTensor_t> tensors(units, weftTrainTensor_t WEFT_TRAIN_TENSOR_INITIALIZER);
        std::vector<weftTrainUnit_t> entries(units, weftTrainUnit_t WEFT_TRAIN_UNIT_INITIALIZER);
        std::vector<std::string> names;
        for (int unit = 0; unit < units; ++unit) names.push_back(fmt::format("unit{}", unit));
        for (size_t unit = 0; unit < units; ++unit) {
            tensors[unit].name = entries[unit].name = names[unit].c_str();
            tensors[unit].data = values.data();
            tensors[unit].count = count;
            entries[unit].parameters = &tensors[unit];
            entries[unit].parameterCount = 1;
        }
        weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
        config.keepGradients = memory.keeps_gradients ? 1 : 0;
        config.overwriteGradients = memory.overwrites_gradients ? 1 : 0;
        expect(weftTrainShardCreate(&shard_, rank.comm(), entries.data(), units, &config), "weftTrainShardCreate");
    }
    Units(const Units&) = delete;
    ~Units() { (void)weftTrainShardDestroy(shard_); }

    double unit_mb() const { return double(count_) * 4 / 1e6; }
    void forward() {
        for (int unit = 0; unit < units; ++unit) {
            gather(unit);
            release(unit, weftTrainForward);
        }
    }
    void backward() {
        for (int unit = units - 1; unit >= 0; --unit) {
            gather(unit);
            compute(unit);
            release(unit, weftTrainBackward);
            reduce(unit);
        }
        finish();
    }
    void one_unit() {
        gather(0);
        compute(0);
        release(0, weftTrainBackward);
        reduce(0);
        finish();
    }
    weftTrainShardStats_t stats() const {
        weftTrainShardStats_t stats = WEFT_TRAIN_SHARD_STATS_INITIALIZER;
        expect(weftTrainShardGetStats(shard_, &stats), "weftTrainShardGetStats");
        return stats;
    }

  private:
    void expect(weftResult_t result, const char* call) const { rank_.expect(result, call); }
    void gather(int unit) { expect(weftTrainShardGather(shard_, unit, nullptr), "weftTrainShardGather"); }
    void release(int unit, weftTrainPass_t pass) {
        expect(weftTrainShardRelease(shard_, unit, pass, nullptr), "weftTrainShardRelease");
    }
    // Nothing but what the object writes.
    void compute(int unit) {
        void* gradient = nullptr;
        expect(weftTrainShardGetGradient(shard_, unit, &gradient), "weftTrainShardGetGradient");
    }
    void reduce(int unit) {
        expect(weftTrainShardReduceScatter(shard_, unit, weftTrainSynchronize, nullptr), "weftTrainShardReduceScatter");
    }
    void finish() {
        expect(weftTrainShardFinish(shard_, nullptr), "weftTrainShardFinish");
        expect(weftTrainShardZeroGradients(shard_), "weftTrainShardZeroGradients");
    }

    Rank& rank_;
    size_t count_;
    weftTrainShard_t shard_ = nullptr;
};

// The calls of a step of Units on as much memory: parts of values and gradients for each unit, and two of each whole.
// Thread-bound.
class BareCalls {
  public:
    BareCalls(Rank& rank, size_t count) : rank_(rank), own_(count / size_t(rank.count())) {
        for (int i = 0; i < units; ++i) {
            values_.push_back(allocated(own_));
            gradients_.push_back(allocated(own_));
        }
        for (int i = 0; i < 2; ++i) {
            gathered_.push_back(allocated(count));
            computed_.push_back(allocated(count));
        }
    }
    BareCalls(const BareCalls&) = delete;
    ~BareCalls() {
        for (const auto* each : {&values_, &gradients_, &gathered_, &computed_})
            for (void* const memory : *each) (void)weftMemFree(memory);
    }
    void gather(int unit) {
        rank_.expect(
            weftAllGather(values_[size_t(unit)], gathered_[size_t(unit) % 2], own_, weftFloat32, rank_.comm(), nullptr),
            "weftAllGather");
    }
    void reduce(int unit) {
        rank_.expect(weftReduceScatter(computed_[size_t(unit) % 2], gradients_[size_t(unit)], own_, weftFloat32,
                                       weftAvg, rank_.comm(), nullptr),
                     "weftReduceScatter");
    }
    void step() {
        for (int unit = 0; unit < units; ++unit) gather(unit);
        for (int unit = units - 1; unit >= 0; --unit) {
            gather(unit);
            reduce(unit);
        }
    }

  private:
    void* allocated(size_t count) {
        void* memory = nullptr;
        rank_.expect(weftHostAlloc(&memory, count * 4), "weftHostAlloc");
        return memory;
    }

    Rank& rank_;
    size_t own_;
    std::vector<void*> values_, gradients_, gathered_, computed_;
};

}  // namespace

void measure_sharded(Rank& rank, int rounds, size_t bytes) {
    const auto ranks = size_t(rank.count());
    const double before = memory_mb(rank);
    const size_t count = bytes / units / 4 / (8 * ranks) * 8 * ranks;
    Units model(rank, count, {});
    model.forward();
    const double after_forward = memory_mb(rank) - before;
    model.backward();
    const double after_step = memory_mb(rank) - before;
    Units zeroed(rank, count, {.keeps_gradients = true});
    Units fast(rank, count, {.keeps_gradients = true, .overwrites_gradients = true});
    // An object of its own: a step of all units would make it prefetch the second one.
    Units single(rank, count, {.keeps_gradients = true, .overwrites_gradients = true});
    BareCalls bare(rank, count);
    const auto step = [](Units& each) {
        each.forward();
        each.backward();
    };
    const auto times = medians(rank, rounds,
                               {[&] {
                                    bare.gather(0);
                                    bare.reduce(0);
                                },
                                [&] { single.one_unit(); }, [&] { bare.step(); }, [&] { step(fast); },
                                [&] { step(zeroed); }, [&] { step(model); }});
    print_row(rank, fmt::format("unit of {:.1f} MB: gather and reduce", model.unit_mb()), times[1], times[0], "1.05");
    print_row(rank, fmt::format("{} units, forward and backward", units), times[3], times[2], "1.05");
    print_row(rank, "the same, gradients begin with zeros", times[4], times[2], "-");
    print_row(rank, "the same, memory is given back", times[5], times[2], "-");
    const double shard = model.unit_mb() * units / rank.count();
    const weftTrainShardStats_t stats = model.stats();
    print(rank,
          fmt::format(
              "\nmemory of a rank, sharded: {:.1f} MB more after a forward pass (goal: the shard and 3 units, {:.1f}), "
              "{:.1f} MB after a step\n"
              "allocated: {:.1f} MB for its shards, {:.1f} MB for whole units and messages; {:.1f} MB at most at once "
              "(goal: 2 shards and 4 units, {:.1f})\n",
              after_forward, shard + 3 * model.unit_mb(), after_step, double(stats.shardBytes) / 1e6,
              double(stats.wholeBytes) / 1e6, double(stats.mostBytes) / 1e6, 2 * shard + 4 * model.unit_mb()));
}

}  // namespace perf
