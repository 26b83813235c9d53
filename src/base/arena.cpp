#include "src/base/arena.hpp"

#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>

#include "src/base/per_process.hpp"

namespace weft {

namespace {

struct Holder {
    std::mutex making;
    std::atomic<Arena*> arena{nullptr};
};
PerProcess<Holder> processes;

}  // namespace

Arena::Arena(SharedMemory memory) : memory_(std::move(memory)) { free_[0] = memory_.bytes(); }

Arena* Arena::existing() { return processes.get().arena.load(std::memory_order_acquire); }

uint64_t Arena::place_of(const void* address, size_t bytes) {
    const Arena* arena = existing();
    if (!arena || !arena->contains(address, bytes)) return 0;
    return uint64_t(static_cast<const std::byte*>(address) - arena->memory().data()) + 1;
}

Result<Arena*> Arena::get() {
    Holder& holder = processes.get();
    if (Arena* made = holder.arena.load(std::memory_order_acquire)) return made;
    std::lock_guard lock(holder.making);
    if (Arena* made = holder.arena.load(std::memory_order_acquire)) return made;
    // As much address space as the machine has memory: more could not be backed anyway.
    struct sysinfo machine {};
    sysinfo(&machine);
    const size_t bytes =
        std::max<size_t>(size_t(1) << 30, size_t(machine.totalram) * machine.mem_unit) / page_bytes() * page_bytes();
    auto memory = SharedMemory::create("weft-arena", bytes);
    if (!memory) return memory.take_status();
    auto* made = new Arena(std::move(*memory));
    holder.arena.store(made, std::memory_order_release);
    return made;
}

Result<void*> Arena::allocate(size_t bytes) {
    if (bytes > memory_.bytes())
        return fail(weftSystemError, "{} bytes of mappable memory are more than this machine's {}", bytes,
                    memory_.bytes());
    const size_t length = std::max(page_bytes(), (bytes + page_bytes() - 1) / page_bytes() * page_bytes());
    std::lock_guard lock(mutex_);
    auto place = std::find_if(free_.begin(), free_.end(), [&](const auto& range) { return range.second >= length; });
    if (place == free_.end())
        return fail(weftSystemError, "{} bytes of mappable memory could not be had: the arena of {} bytes is full",
                    bytes, memory_.bytes());
    const auto [offset, available] = *place;
    WEFT_TRY(memory_.back(offset, length));
    free_.erase(place);
    if (available > length) free_[offset + length] = available - length;
    used_[offset] = length;
    return static_cast<void*>(memory_.data() + offset);
}

Status Arena::free(void* address) {
    std::lock_guard lock(mutex_);
    const size_t offset = size_t(static_cast<std::byte*>(address) - memory_.data());
    const auto place = contains(address, 0) ? used_.find(offset) : used_.end();
    if (place == used_.end())
        return fail(weftInvalidArgument, "{} was not allocated by weftMemAlloc in this process, or was freed already",
                    address);
    const size_t length = place->second;
    used_.erase(place);
    memory_.release(offset, length);
    auto next = free_.emplace(offset, length).first;
    if (auto after = std::next(next); after != free_.end() && next->first + next->second == after->first) {
        next->second += after->second;
        free_.erase(after);
    }
    if (next != free_.begin())
        if (auto before = std::prev(next); before->first + before->second == next->first) {
            before->second += next->second;
            free_.erase(next);
        }
    return ok();
}

Result<ArenaMemory> ArenaMemory::allocate(size_t bytes) {
    auto arena = Arena::get();
    if (!arena) return arena.take_status();
    auto data = (*arena)->allocate(bytes);
    if (!data) return data.take_status();
    ArenaMemory memory;
    memory.arena_ = *arena;
    memory.data_ = static_cast<std::byte*>(*data);
    memory.bytes_ = bytes;
    return memory;
}

ArenaMemory::~ArenaMemory() {
    if (data_ && Arena::existing() == arena_) (void)arena_->free(data_);
}

}  // namespace weft
