#include "src/gpu/domain/domain.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>

#include "src/base/clock.hpp"
#include "src/base/per_process.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal::cuda {

namespace {

constexpr int64_t peer_patience_us = 300'000;  // peers that leave at about the same time usually need less

struct Parked {
    std::mutex mutex;
    std::list<std::unique_ptr<Domain>> all;
    int alive = 0;  // domains that are not retired
};
Parked& parked_domains() {
    static PerProcess<Parked> of_process;
    return of_process.get();
}

}  // namespace

Domain::Domain(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels,
               Connections connections, int multicast_ranks)
    : ranks_(std::move(group), rank),
      memory_(ranks_, std::move(kernels), std::move(connections)),
      order_(ranks_, memory_.kernels()),
      join_(ranks_, memory_, order_, multicast_ranks) {
    Parked& parked = parked_domains();
    std::lock_guard lock(parked.mutex);
    ++parked.alive;
}

Domain::~Domain() {
    join_.withdraw();
    const ContextScope scope(memory_.kernels().context());
    order_.end();
    join_.end();
}

void Domain::make_copy_signals() {
    auto signals = CopySignals::make(ranks_.segment, ranks_.rank, memory_);
    if (signals) copy_signals_ = std::move(*signals);
}

void Domain::make_switched_memory(const std::shared_ptr<const KernelSet>& kernels) {
    switched_windows_ = std::make_unique<SwitchedWindows>(ranks_.count, ranks_.rank, kernels);
    switched_buffers_ = std::make_shared<SwitchedBuffers>(ranks_.segment, ranks_.rank, kernels);
}

KernelFailure Domain::failure() const {
    return std::atomic_ref(reports().report.failure)
        .load(std::memory_order_acquire);  // pairs with KernelBarrier::fail()
}

void Domain::unmap() {
    if (unmapped_ || order_.working()) return;
    // If joining has failed, its copies and kernels may still access our memory and the peers'.
    join_.unmap();
    unmapped_ = true;
    ranks_.segment->row(ranks_.rank).gpu.left.store(1, std::memory_order_release);
}

bool Domain::is_unused() const {
    return unmapped_ && std::all_of(ranks_.members.begin(), ranks_.members.end(), [this](int peer) {
               return peer == ranks_.rank || ranks_.segment->row(peer).gpu.left.load(std::memory_order_acquire) != 0 ||
                      !Liveness(*ranks_.segment).alive(peer);
           });
}

void Domain::retire(std::unique_ptr<Domain> domain) {
    const RelaxedCapture relaxed(domain->memory_.kernels().driver());
    domain->join_.withdraw();
    if (domain->switched_buffers_) domain->switched_buffers_->stop();
    const bool elsewhere = !domain->ranks_.one_process();
    domain->unmap();
    // This thread may drive the other ranks of this process, which leave later.
    for (const int64_t until = now_us() + peer_patience_us;
         domain->unmapped_ && !domain->is_unused() && elsewhere && now_us() < until;)
        usleep(100);
    Parked& parked = parked_domains();
    std::list<std::unique_ptr<Domain>> mapped, gone;  // destroyed outside the lock, like the unused memory
    MemoryPool::Contents freed;
    bool last = false;
    const auto take = [&](std::list<std::unique_ptr<Domain>>& to, auto which) {
        for (auto place = parked.all.begin(); place != parked.all.end();)
            if (const auto each = place++; which(**each)) to.splice(to.end(), parked.all, each);
    };
    {
        std::lock_guard lock(parked.mutex);
        take(mapped, [](const Domain& each) { return !each.unmapped_; });
    }
    // unmap() waits for the device. Threads that make or end a communicator meanwhile must not wait for it.
    for (const auto& each : mapped) each->unmap();
    {
        std::lock_guard lock(parked.mutex);
        --parked.alive;
        parked.all.push_back(std::move(domain));
        parked.all.splice(parked.all.end(), mapped);
        // Done after each unmapping, in any thread, so that the last thread finds all domains that have become unused.
        take(gone, [](const Domain& each) { return each.is_unused(); });
        for (const auto& each : gone) {
            each->memory_.give_to_pool();
            if (each->switched_windows_)
                MemoryPool::of_process().give(std::move(each->switched_windows_), std::move(each->switched_buffers_));
        }
        last = parked.alive == 0;
        if (last) freed = MemoryPool::of_process().take_all();
    }
    gone.clear();
    if (last)
        MemoryPool::of_process().await_freed();
    else
        MemoryPool::of_process().free_multicast_soon();
}

}  // namespace weft::internal::cuda
