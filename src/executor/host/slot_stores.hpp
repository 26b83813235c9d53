// slot_stores.hpp: how a rank writes into slots that others read: through its caches, or past them.
// A line that was last in the cache of a core far away (another socket, another cluster of cores) is fetched from there
// before it is written: 2.5 GB/s, measured, where stores past the caches reach 20. Between near cores it is the other way
// round: what is stored past the caches comes back from memory. Nobody tells which cores are near, and threads move: so
// now and then it is timed. Thread-bound to the rank; nobody else need know what it does.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>

#include "src/executor/host/movers.hpp"

namespace weft {

class SlotStores {
  public:
    // For what is written beside other things, and so can't be timed.
    Stores next() {
        if (until_trial_ > 1) --until_trial_;
        return stores_;
    }

    // Writes `bytes` into a slot by `job(stores)`, which is timed now and then.
    template <class Job>
    void write(size_t bytes, const Job& job) {
        if (bytes < streamed_least_bytes) return job(Stores::ordinary);
        if (--until_trial_ > 0) [[likely]]
            return job(stores_);
        until_trial_ = 1;
        if (bytes < timed_least_bytes) return job(stores_);
        std::atomic_thread_fence(std::memory_order_seq_cst);  // what is still on its way does not count
        const auto begin = std::chrono::steady_clock::now();
        job(tried());
        std::atomic_thread_fence(std::memory_order_seq_cst);  // and what is now, does
        const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
        judge(taken.count() * 64 / double(bytes));
    }
    // As Movers::copy.
    void copy(const Movers& movers, void* slot, const void* source, size_t bytes) {
        write(bytes, [&](Stores stores) { movers.copy({slot, source, bytes, stores}); });
    }

    // What the next trial is of: ordinary stores; if these are slow, streaming ones, and ordinary ones once more, for the
    // first may have been disturbed.
    Stores tried() const { return trial_ == 1 ? Stores::streaming : Stores::ordinary; }
    // What it took, ns for 64 bytes.
    void judge(double line_ns) {
        taken_[trial_] = line_ns;
        if (trial_ == 0 ? line_ns > slow_line_ns : trial_ == 1) {
            ++trial_;
            until_trial_ = 1;
            return;
        }
        // A source in memory is slow with either: then the caches are right.
        const bool past_caches = trial_ == 2 && 2 * taken_[1] < std::min(taken_[0], taken_[2]);
        trial_ = 0;
        patience_ =
            past_caches && stores_ == Stores::streaming ? std::min(2 * patience_, patience_most) : patience_least;
        stores_ = past_caches ? Stores::streaming : Stores::ordinary;
        until_trial_ = patience_;
    }

  private:
    static constexpr size_t streamed_least_bytes = 2048, timed_least_bytes = 4096;
    static constexpr double slow_line_ns = 8;                       // near cores take 2 to 3, far ones 24
    static constexpr int patience_least = 16, patience_most = 256;  // writes to the next trial

    Stores stores_ = Stores::ordinary;
    int until_trial_ = patience_least, patience_ = patience_least;
    int trial_ = 0;         // of three, the one that is next
    double taken_[3] = {};  // by the last trials
};

}  // namespace weft
