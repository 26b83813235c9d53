// slot_stores.hpp: how a rank writes into slots that others read: through its caches, or past them.
// A line that was last in the cache of a core far away (another socket, another cluster of cores) is fetched from there
// before it is written, one after the other: 2.5 GB/s, measured, where stores past the caches reach 20. Between near cores
// it is the other way round: what is stored past the caches comes back from memory. Nobody tells which cores are near, and
// threads move: so now and then a copy is timed. Thread-bound to the rank; nobody else need know what it does.
#pragma once
#include <atomic>
#include <chrono>

#include "src/executor/host/movers.hpp"

namespace weft {

class SlotStores {
  public:
    // For what is written otherwise than by copy().
    Stores now() const { return stores_; }

    // Like Movers::copy.
    void copy(const Movers& movers, void* slot, const void* source, size_t bytes) {
        if (bytes < timed_least_bytes || --until_trial_ > 0) [[likely]]
            return movers.copy({slot, source, bytes, bytes < timed_least_bytes ? Stores::ordinary : stores_});
        // A trial: ordinary stores first; if these are slow, the next copy goes past the caches, and decides.
        const Stores tried = decides_ ? Stores::streaming : Stores::ordinary;
        const auto begin = std::chrono::steady_clock::now();
        movers.copy({slot, source, bytes, tried});
        std::atomic_thread_fence(std::memory_order_seq_cst);  // what is still on its way counts
        const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
        judge(taken.count() * 64 / double(bytes));
    }

    // What a trial took, ns for 64 bytes.
    void judge(double line_ns) {
        if (!decides_ && line_ns > slow_line_ns) {
            ordinary_line_ns_ = line_ns;
            decides_ = true;
            until_trial_ = 1;
            return;
        }
        // A source in memory, or a core that was taken away, is slow with either: then the caches are right.
        stores_ = decides_ && 2 * line_ns < ordinary_line_ns_ ? Stores::streaming : Stores::ordinary;
        decides_ = false;
        until_trial_ = stores_ == Stores::streaming ? copies_past_caches : copies_through_caches;
    }

  private:
    static constexpr size_t timed_least_bytes = 2048;
    static constexpr double slow_line_ns = 8;                                   // near cores take 2 to 3, far ones 24
    static constexpr int copies_through_caches = 16, copies_past_caches = 256;  // to the next trial

    Stores stores_ = Stores::ordinary;
    bool decides_ = false;  // the trial that is next: whether stores past the caches take less
    int until_trial_ = copies_through_caches;
    double ordinary_line_ns_ = 0;
};

}  // namespace weft
