// tombstones.hpp: memory of user-visible handles is never freed, so that use after destruction is an error and not a
// crash. Such a handle begins with a `magic` that tells its type and whether it is alive. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/fork_lock.hpp"

namespace weft::internal {

// Kept in an immortal list, so that leak checkers do not report it.
inline std::mutex tombstones_mutex;
template <class Handle>
Handle* keep_tombstone(std::unique_ptr<Handle> handle) {
    static auto* const all = new std::vector<std::unique_ptr<Handle>>;
    hold_over_fork<tombstones_mutex>();
    std::lock_guard lock(tombstones_mutex);
    all->push_back(std::move(handle));
    return all->back().get();
}

// 0: null, or misaligned for a handle; then the pointer is not dereferenced.
template <class Handle>
uint64_t magic_of(const Handle* handle) {
    const bool misplaced = !handle || reinterpret_cast<uintptr_t>(handle) % alignof(Handle) != 0;
    return misplaced ? 0 : handle->magic.load(std::memory_order_acquire);
}

}  // namespace weft::internal
