#include "src/gpu/domain/memory_pool.hpp"

#include <algorithm>
#include <utility>

#include "src/base/per_process.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/driver_tasks.hpp"

namespace weft::internal::cuda {

MemoryPool& MemoryPool::of_process() {
    static PerProcess<MemoryPool> pool;
    return pool.get();
}

std::optional<ExportableMemory> MemoryPool::take(const Context& context, size_t bytes,
                                                 ExportableMemory::ExportMethod way) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(all_.memory.begin(), all_.memory.end(), [&](const RetiredMemory& each) {
        return each.context.device() == context.device() && each.bytes == bytes && each.memory.way() == way;
    });
    if (found == all_.memory.end()) return {};
    ExportableMemory memory = std::move(found->memory);
    all_.memory.erase(found);
    return memory;
}

std::optional<HostMemory> MemoryPool::take_host(const Context& context, size_t remote_bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(all_.host.begin(), all_.host.end(), [&](const RetiredHostMemory& each) {
        return each.context.device() == context.device() && each.memory.remote.bytes() == remote_bytes;
    });
    if (found == all_.host.end()) return {};
    HostMemory memory = std::move(found->memory);
    all_.host.erase(found);
    return memory;
}

std::optional<NetworkSlots> MemoryPool::take_slots(const Context& context, size_t bytes, bool on_device,
                                                   const void* transport) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(all_.slots.begin(), all_.slots.end(), [&](const RetiredSlots& each) {
        return each.context.device() == context.device() && each.memory.bytes() == bytes &&
               each.memory.on_device() == on_device && each.memory.transport == transport;
    });
    if (found == all_.slots.end()) return {};
    NetworkSlots slots = std::move(found->memory);
    all_.slots.erase(found);
    return slots;
}

void MemoryPool::give(Context context, ExportableMemory memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    all_.memory.push_back({std::move(context), std::move(memory), bytes});
}

void MemoryPool::give(Context context, HostMemory memory) {
    const std::lock_guard lock(mutex_);
    all_.host.push_back({std::move(context), std::move(memory)});
}

void MemoryPool::give(Context context, NetworkSlots slots) {
    const std::lock_guard lock(mutex_);
    all_.slots.push_back({std::move(context), std::move(slots)});
}

void MemoryPool::give(Context context, MulticastMemory memory) {
    const std::lock_guard lock(mutex_);
    all_.multicast.push_back({std::move(context), std::move(memory)});
}

void MemoryPool::give(Context context, VmmMemory memory) {
    const std::lock_guard lock(mutex_);
    all_.fabric.push_back({std::move(context), std::move(memory)});
}

void MemoryPool::give(std::unique_ptr<SwitchedWindows> windows, std::shared_ptr<SwitchedBuffers> buffers) {
    const std::lock_guard lock(mutex_);
    all_.switched.push_back({std::move(windows), std::move(buffers)});
}

void MemoryPool::free_multicast_soon() {
    {
        const std::lock_guard lock(mutex_);
        if (all_.multicast.empty() && all_.switched.empty()) return;
    }
    // Without a thread the memory is freed with the process's last domain.
    (void)post_driver_task([this] {
        const std::lock_guard freeing(freeing_);
        std::list<RetiredMulticast> memory;
        std::list<RetiredSwitched> switched;
        {
            const std::lock_guard lock(mutex_);
            memory.swap(all_.multicast);
            switched.swap(all_.switched);
        }
        while (!memory.empty()) {
            const RelaxedCapture relaxed(memory.front().context.driver());
            memory.pop_front();
        }
    });
}

MemoryPool::Contents MemoryPool::take_all() {
    const std::lock_guard lock(mutex_);
    return std::exchange(all_, {});
}

}  // namespace weft::internal::cuda
