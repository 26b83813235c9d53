// slot_stores.hpp: chooses ordinary or streaming stores for slots that other ranks read.
// An ordinary store first fetches the line, which is slow if a core on another socket or core cluster holds it. Streaming
// stores avoid the fetch, but a reader on a near core then reads from memory. Threads move, so the choice is measured:
// now and then a rank times stores to single lines of the slot. If these are slow, it times both kinds of stores.
// Writes beside reads of far lines always stream, because no processor hides both latencies.
// Figures: perf/results/2026-11-23-epyc-family25.md. Thread-bound to the rank.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>

#include "src/kernels/cpu_kernels.hpp"

namespace weft::internal {

class SlotStores {
  public:
    // The kind of write: a trial compares writes of one kind only.
    enum class Work : uint8_t { copy, reduction };

    // For writes beside reads of other ranks' slots, which cannot be timed by themselves.
    Stores beside_reads(size_t bytes) {
        if (until_trial_ > 1) --until_trial_;
        return far_ && bytes >= timed_least_bytes ? Stores::streaming : stores_;
    }

    // Writes `bytes` into a slot by `job(stores)`, and times it now and then. The old content of the slot is lost.
    template <class Job>
    void write(void* slot, size_t bytes, Work work, const Job& job) {
        if (bytes < streamed_least_bytes) return job(Stores::ordinary);
        if (--until_trial_ > 0) [[likely]]
            return job(stores_);
        until_trial_ = 1;
        if (bytes < timed_least_bytes || (trial_ > 0 && work != work_)) return job(stores_);
        if (trial_ == 0) {
            double line_ns = slowest_line_ns(slot, bytes, 0);
            // Measure again at other lines: the first measurement may have been interrupted.
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

    // Takes the time of a store to a line that readers may hold. If the readers are near, no trial is needed.
    void look(double line_ns) {
        far_ = line_ns >= far_line_ns;
        if (!far_) settle(Stores::ordinary);
    }
    // The stores of the next trial: ordinary, then, if these are slow, streaming twice and ordinary once more. An
    // operation may write its slot in two pieces, of which the second has its source in a cache. This order gives each
    // kind one of each.
    Stores tried() const { return trial_ == 1 || trial_ == 2 ? Stores::streaming : Stores::ordinary; }
    // Takes the result of the trial, ns per 64 bytes.
    void judge(double line_ns) {
        taken_[trial_] = line_ns;
        if (trial_ == 0 && line_ns < slow_line_ns) return settle(Stores::ordinary);
        if (trial_ < trials - 1) {
            ++trial_;
            until_trial_ = 1;
            return;
        }
        const double ordinary = taken_[0] + taken_[3], streaming = taken_[1] + taken_[2];
        // If the source is in memory, both kinds are slow, and ordinary stores are right.
        settle(taken_[3] >= slow_line_ns && streaming < ordinary * streaming_most ? Stores::streaming
                                                                                  : Stores::ordinary);
    }

  private:
    static constexpr size_t streamed_least_bytes = 2048, timed_least_bytes = 4096;
    static constexpr double far_line_ns = 100;     // near cores take less than 70, far ones more than 130
    static constexpr double slow_line_ns = 8;      // of many lines: near cores take 3, far ones 24
    static constexpr double streaming_most = 0.9;  // of the time of ordinary stores
    static constexpr int patience_least = 16, patience_most = 128;  // writes until the next measurement
    static constexpr int trials = 4, looked_at = 4;

    template <class Job>
    static double taken_ns(const Job& job) {
        std::atomic_thread_fence(std::memory_order_seq_cst);  // earlier stores do not count
        const auto begin = std::chrono::steady_clock::now();
        job();
        std::atomic_thread_fence(std::memory_order_seq_cst);  // this job's stores do
        return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    }
    // Of several lines: a reader reads only a part of the slot, and some readers are near.
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

    Stores stores_ = Stores::ordinary;  // of writes that are not beside reads
    bool far_ = false;                  // as last measured
    int until_trial_ = patience_least, patience_ = patience_least;
    int trial_ = 0;  // the next one; 0: a measurement of lines comes before it
    Work work_ = Work::copy;
    double taken_[trials] = {};  // ns per line, by trial
};

}  // namespace weft::internal
