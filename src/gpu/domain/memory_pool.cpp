#include "src/gpu/domain/memory_pool.hpp"

#include <algorithm>
#include <utility>

#include "src/base/per_process.hpp"

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

void MemoryPool::give(Context context, ExportableMemory memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    all_.memory.push_back({std::move(context), std::move(memory), bytes});
}

void MemoryPool::give(Context context, HostMemory memory) {
    const std::lock_guard lock(mutex_);
    all_.host.push_back({std::move(context), std::move(memory)});
}

MemoryPool::Contents MemoryPool::take_all() {
    const std::lock_guard lock(mutex_);
    return std::exchange(all_, {});
}

}  // namespace weft::internal::cuda
