// slot_stores.hpp: how a rank writes into slots that others read: through its caches, or past them.
// A line that was last in the cache of a core far away (another socket, another cluster of cores) is fetched from there
// before it is written: 2.5 GB/s, measured, where stores past the caches reach 20. Between near cores it is the other way
// round: what is stored past the caches comes back from memory. Nobody tells which cores are near, and threads move: so
// now and then a rank looks how long single lines of the slot take to store to, and where that is long it times both kinds
// of stores. What is written while lines from far away are read goes past the caches wherever lines are far: processors that
// hide the one from the writer do not hide both. Figures: perf/results/2026-11-23-epyc-family25.md. Thread-bound to the rank;
// nobody else need know what it does.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>

#include "src/kernels/cpu_kernels.hpp"

namespace weft::internal {

class SlotStores {
  public:
    // What else a write does: a trial compares like with like.
    enum class Work : uint8_t { copy, reduction };

    // For what is written while slots of others are read, and so can't be timed by itself.
    Stores beside_reads(size_t bytes) {
        if (until_trial_ > 1) --until_trial_;
        return far_ && bytes >= timed_least_bytes ? Stores::streaming : stores_;
    }

    // Writes `bytes` into a slot, which hold nothing that is wanted, by `job(stores)`, which is timed now and then.
    template <class Job>
    void write(void* slot, size_t bytes, Work work, const Job& job) {
        if (bytes < streamed_least_bytes) return job(Stores::ordinary);
        if (--until_trial_ > 0) [[likely]]
            return job(stores_);
        until_trial_ = 1;
        if (bytes < timed_least_bytes || (trial_ > 0 && work != work_)) return job(stores_);
        if (trial_ == 0) {
            double line_ns = slowest_line_ns(slot, bytes, 0);
            // Again, at other lines: the first look may have been interrupted.
            if (line_ns >= far_line_ns) line_ns = std::min(line_ns, slowest_line_ns(slot, bytes, 1));
            look(line_ns);
            if (until_trial_ > 1) return job(stores_);
            work_ = work;
        }
        judge(64 / double(bytes) * taken_ns([&] { job(tried()); }));
    }
    // As CpuKernels::copy.
    void copy(const CpuKernels& cpu_kernels, void* slot, const void* source, size_t bytes) {
        write(slot, bytes, Work::copy, [&](Stores stores) { cpu_kernels.copy({slot, source, bytes, stores}); });
    }

    // What it took to store to a line that readers may hold, ns: from near ones it comes at once, and no trial is needed.
    void look(double line_ns) {
        far_ = line_ns >= far_line_ns;
        if (!far_) settle(Stores::ordinary);
    }
    // What the next trial is of: ordinary stores, and if these are slow streaming ones, twice, and ordinary ones once
    // more. Where an operation writes its slot in two pieces, of which the second finds its source nearer, each kind gets
    // both.
    Stores tried() const { return trial_ == 1 || trial_ == 2 ? Stores::streaming : Stores::ordinary; }
    // What it took, ns for 64 bytes.
    void judge(double line_ns) {
        taken_[trial_] = line_ns;
        if (trial_ == 0 && line_ns < slow_line_ns) return settle(Stores::ordinary);
        if (trial_ < trials - 1) {
            ++trial_;
            until_trial_ = 1;
            return;
        }
        const double ordinary = taken_[0] + taken_[3], streaming = taken_[1] + taken_[2];
        // A source in memory is slow with either: then the caches are right.
        settle(taken_[3] >= slow_line_ns && streaming < ordinary * streaming_most ? Stores::streaming
                                                                                  : Stores::ordinary);
    }

  private:
    static constexpr size_t streamed_least_bytes = 2048, timed_least_bytes = 4096;
    static constexpr double far_line_ns = 100;  // near cores: 30 to 70, far ones 130 to 180, the clock's 25 among them
    static constexpr double slow_line_ns = 8;   // of many lines: near cores take 2 to 3, far ones 24
    static constexpr double streaming_most = 0.9;                   // of what ordinary stores take
    static constexpr int patience_least = 16, patience_most = 128;  // writes to the next look
    static constexpr int trials = 4, looked_at = 4;

    template <class Job>
    static double taken_ns(const Job& job) {
        std::atomic_thread_fence(std::memory_order_seq_cst);  // what is still on its way does not count
        const auto begin = std::chrono::steady_clock::now();
        job();
        std::atomic_thread_fence(std::memory_order_seq_cst);  // and what is now, does
        return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    }
    // Of some lines: a reader takes but a part of a slot, and some readers are near.
    static double slowest_line_ns(void* slot, size_t bytes, size_t first_line) {
        double slowest = 0;
        for (size_t i = 0; i < looked_at; ++i) {
            volatile char* const line = static_cast<char*>(slot) + bytes * i / looked_at + 64 * first_line;
            slowest = std::max(slowest, taken_ns([&] { *line = 0; }));
        }
        return slowest;
    }
    void settle(Stores stores) {
        trial_ = 0;
        patience_ = stores == stores_ ? std::min(2 * patience_, patience_most) : patience_least;
        stores_ = stores;
        until_trial_ = patience_;
    }

    Stores stores_ = Stores::ordinary;  // of what is written by itself
    bool far_ = false;                  // as the last look found
    int until_trial_ = patience_least, patience_ = patience_least;
    int trial_ = 0;  // the one that is next; 0: a look comes before it
    Work work_ = Work::copy;
    double taken_[trials] = {};  // by the last trials
};

}  // namespace weft::internal
