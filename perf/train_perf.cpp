// train_perf.cpp: steps of weft/train.h beside bare collectives of the same bytes, in turns.
#include <fmt/format.h>
#include <unistd.h>
#include <weft/train.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "command_line.hpp"
#include "job.hpp"
#include "train_measure.hpp"
#include "train_sharded.hpp"

namespace perf {
namespace {

struct Options {
    int rounds = 30;
    size_t model_mb = 100, layers = 100;
    size_t small_count = 1000, small_bytes = 1024;
    double compute = 1.5;  // of the overlapped step, in times of the fused all-reduce
};

// A model of equal float32 parameters, and a buffer of its size for the fused all-reduce. Thread-bound.
class Model {
  public:
    Model(Rank& rank, size_t parameters, size_t bytes) : rank_(rank), count_(parameters * (bytes / 4)) {
        values_.resize(count_);
        std::vector<std::string> names(parameters);
        std::vector<weftTrainTensor_t> tensors(parameters, weftTrainTensor_t WEFT_TRAIN_TENSOR_INITIALIZER);
        for (size_t i = 0; i < parameters; ++i) {
            names[i] = fmt::format("layer{}", i);
            tensors[i].name = names[i].c_str();
            tensors[i].data = values_.data() + i * (bytes / 4);
            tensors[i].count = bytes / 4;
        }
        order_.resize(parameters);
        std::iota(order_.rbegin(), order_.rend(), 0);
        rank.expect(weftTrainDdpCreate(&ddp_, rank.comm(), tensors.data(), parameters, nullptr, 0, nullptr),
                    "weftTrainDdpCreate");
        rank.expect(weftHostAlloc(&fused_, count_ * 4), "weftHostAlloc");
        // The buckets are rebuilt in the second step.
        for (int i = 0; i < 3; ++i) step_together();
    }
    Model(const Model&) = delete;
    ~Model() {
        (void)weftTrainDdpDestroy(ddp_);
        (void)weftMemFree(fused_);
    }

    double mb() const { return double(count_) * 4 / 1e6; }
    void fused() {
        rank_.expect(weftAllReduce(fused_, fused_, count_, weftFloat32, weftAvg, rank_.comm(), nullptr),
                     "weftAllReduce");
    }
    void step_together() {
        begin();
        rank_.expect(weftTrainDdpGradientsReady(ddp_, order_.data(), order_.size(), nullptr),
                     "weftTrainDdpGradientsReady");
        finish();
    }
    // With the work of a backward pass before each report.
    template <class Work>
    void step_one_by_one(Work&& work) {
        begin();
        for (const int parameter : order_) {
            work();
            rank_.expect(weftTrainDdpGradientReady(ddp_, parameter, nullptr), "weftTrainDdpGradientReady");
        }
        finish();
    }

  private:
    void begin() { rank_.expect(weftTrainDdpBegin(ddp_, weftTrainSynchronize, nullptr), "weftTrainDdpBegin"); }
    void finish() { rank_.expect(weftTrainDdpFinish(ddp_, nullptr), "weftTrainDdpFinish"); }

    Rank& rank_;
    size_t count_;
    std::vector<float> values_;
    std::vector<int> order_;  // the last layer's gradient comes first
    void* fused_ = nullptr;
    weftTrainDdp_t ddp_ = nullptr;
};

// Arithmetic of a fixed amount, so that it takes longer if it shares its core.
class Compute {
  public:
    void run(size_t loops) {
        for (size_t loop = 0; loop < loops; ++loop)
            for (float& number : numbers_) number = number * 0.999f + 0.001f;
        asm volatile("" ::"r"(numbers_.data()) : "memory");
    }
    // The loops that take so long.
    size_t loops_for(double us) {
        double least = 1e30;
        for (int turn = 0; turn < 5; ++turn) {
            const double begin = now_us();
            run(100);
            least = std::min(least, now_us() - begin);
        }
        return std::max<size_t>(1, size_t(us / least * 100));
    }

  private:
    std::vector<float> numbers_ = std::vector<float>(4096);
};

void measure_small(Rank& rank, const Options& options) {
    Model model(rank, options.small_count, options.small_bytes);
    const auto times =
        medians(rank, options.rounds * 10,
                {[&] { model.fused(); }, [&] { model.step_together(); }, [&] { model.step_one_by_one([] {}); }});
    print_row(rank, fmt::format("{} x {} B, one report", options.small_count, options.small_bytes).c_str(), times[1],
              times[0], "1.2");
    print_row(rank, fmt::format("{} x {} B, each reported", options.small_count, options.small_bytes).c_str(), times[2],
              times[0], "1.2");
}

void measure_large(Rank& rank, const Options& options) {
    const double before = memory_mb(rank);
    Model model(rank, options.layers, options.model_mb * 1'000'000 / options.layers / 4 * 4);
    const double memory = memory_mb(rank) - before;
    const auto times = medians(rank, options.rounds, {[&] { model.fused(); }, [&] { model.step_together(); }});
    print_row(rank, fmt::format("{:.0f} MB, all ready at once", model.mb()).c_str(), times[1], times[0], "1.05");
    const double fused = times[0];
    Compute compute;
    const size_t loops = compute.loops_for(fused * options.compute / double(options.layers));
    const auto overlapped = medians(rank, options.rounds,
                                    {[&] {
                                         for (size_t i = 0; i < options.layers; ++i) compute.run(loops);
                                     },
                                     [&] { model.step_one_by_one([&] { compute.run(loops); }); }});
    const double exposed = overlapped[1] - overlapped[0];
    print(rank,
          fmt::format("\ncompute alone {:.0f} us, the step {:.0f} us, all-reduce alone {:.0f} us\n"
                      "exposed communication {:.0f} us: {:.0f} % of the all-reduce (goal: 15 % with two cores a "
                      "rank; {} cores here for {} ranks)\n"
                      "memory of a rank: {:.0f} MB more for a model of {:.0f} MB, its gradients and the buffer of "
                      "the all-reduce\n\n",
                      overlapped[0], overlapped[1], fused, exposed, 100 * exposed / fused,
                      sysconf(_SC_NPROCESSORS_ONLN), rank.count(), memory, model.mb()));
}

int run(Rank& rank, const Options& options) {
    print(rank, fmt::format("# train_perf: {} ranks, median of the slowest rank over {} rounds, in turns\n"
                            "{:<36} {:>10} {:>10} {:>7}  goal\n",
                            rank.count(), options.rounds, "step", "us", "bare us", "ratio"));
    measure_small(rank, options);
    measure_large(rank, options);
    measure_sharded(rank, options.rounds, options.model_mb * 1'000'000);
    return 0;
}

}  // namespace
}  // namespace perf

int main(int argc, char** argv) {
    perf::Options options;
    perf::Arguments arguments;
    CLI::App app("Steps of weft/train.h beside bare collectives of the same bytes.", "train_perf");
    app.add_option("-t,--nthreads", arguments.threads, "ranks as threads, unless a launcher started processes")
        ->check(CLI::Range(1, 1024));
    app.add_option("-n,--rounds", options.rounds, "rounds of the large model; small ones run ten times as many")
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("-m,--megabytes", options.model_mb, "of the large model")->check(CLI::Range(1, 1'000'000));
    app.add_option("-l,--layers", options.layers, "parameters of the large model")->check(CLI::Range(1, 100'000));
    app.add_option("-c,--compute", options.compute, "work of the backward pass, in times of the all-reduce")
        ->check(CLI::Range(0.0, 1000.0));
    if (const auto status = perf::parse_command_line(app, argc, argv)) return *status;
    const int status =
        perf::run_ranks("train_perf", arguments, [&](perf::Rank& rank) { return perf::run(rank, options); });
    return weft::internal::status_after_output("train_perf", status);
}
