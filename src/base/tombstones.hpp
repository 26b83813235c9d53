// tombstones.hpp: what users hold pointers to is never freed, so that using it when it has ended is a sentence and not
// a crash. Such a handle begins with a `magic` that says what it is and whether it lives. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace weft::internal {

// Owned by a list that lives for ever, so that it does not count as leaked.
template <class Handle>
Handle* keep_tombstone(std::unique_ptr<Handle> handle) {
    static std::mutex mutex;
    static auto* const all = new std::vector<std::unique_ptr<Handle>>;
    std::lock_guard lock(mutex);
    all->push_back(std::move(handle));
    return all->back().get();
}

// 0: null, or does not even lie as a handle does, and is not looked into.
template <class Handle>
uint64_t magic_of(const Handle* handle) {
    const bool misplaced = !handle || reinterpret_cast<uintptr_t>(handle) % alignof(Handle) != 0;
    return misplaced ? 0 : handle->magic.load(std::memory_order_acquire);
}

}  // namespace weft::internal
