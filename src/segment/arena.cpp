#include "src/segment/arena.hpp"

#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>

#include "src/base/per_process.hpp"

namespace weft::internal {

namespace {

constexpr size_t first_piece_bytes = size_t(4) << 20;

struct Holder {
    std::mutex making;
    std::atomic<Arena*> arena{nullptr};
};
PerProcess<Holder> processes;

// Under an address-space limit, a reservation as large as the machine's memory would leave nothing for the program.
bool fits_address_space(size_t bytes) {
    rlimit limit{};
    return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur / 4;
}

}  // namespace

Arena::Arena(SharedMemory memory) : memory_(std::move(memory)), mapped_(memory_.bytes()) {
    pieces_[0] = {memory_.data(), memory_.bytes(), 0, {}};
    piece_count_.store(1, std::memory_order_release);
    free_[0] = memory_.bytes();
}

Arena* Arena::existing() { return processes.get().arena.load(std::memory_order_acquire); }

uint64_t Arena::place_of(const void* address, size_t bytes) {
    const Arena* arena = existing();
    const Piece* const piece = arena ? arena->piece_of(address, std::max<size_t>(bytes, 1)) : nullptr;
    return piece ? piece->offset + uint64_t(static_cast<const std::byte*>(address) - piece->data) + 1 : 0;
}

Result<Arena*> Arena::get() {
    Holder& holder = processes.get();
    if (Arena* made = holder.arena.load(std::memory_order_acquire)) return made;
    std::lock_guard lock(holder.making);
    if (Arena* made = holder.arena.load(std::memory_order_acquire)) return made;
    // As large as the machine's memory: more could not be backed.
    struct sysinfo machine {};
    sysinfo(&machine);
    const size_t bytes =
        std::max<size_t>(size_t(1) << 30, size_t(machine.totalram) * machine.mem_unit) / page_bytes() * page_bytes();
    auto memory = SharedMemory::create("weft-arena", bytes, fits_address_space(bytes) ? 0 : first_piece_bytes);
    if (!memory) return memory.take_status();
    auto* made = new Arena(std::move(*memory));
    holder.arena.store(made, std::memory_order_release);
    return made;
}

const Arena::Piece* Arena::piece_of(const void* address, size_t bytes) const {
    const size_t count = piece_count_.load(std::memory_order_acquire);  // pairs with grow()
    for (size_t i = 0; i < count; ++i)
        if (pieces_[i].contains(address, bytes)) return &pieces_[i];
    return nullptr;
}

// Doubles the mapped bytes; maps `length` bytes if that is more, or if the doubled size cannot be mapped.
Status Arena::grow(size_t length) {
    const size_t count = piece_count_.load(std::memory_order_relaxed), left = memory_.segment_bytes() - mapped_;
    if (length > left || count == pieces_.size())
        return fail(error::memory_arena,
                    "{} bytes of mappable memory could not be allocated: the arena of {} bytes is "
                    "full",
                    length, memory_.segment_bytes());
    size_t bytes = std::min(left, std::max(length, mapped_));
    auto window = SharedMemory::window(memory_, mapped_, bytes);
    if (!window && bytes > length) window = SharedMemory::window(memory_, mapped_, bytes = length);
    if (!window) return window.take_status();
    pieces_[count] = {window->data(), bytes, mapped_, std::move(*window)};
    free_[mapped_] = bytes;
    mapped_ += bytes;
    piece_count_.store(count + 1, std::memory_order_release);  // pairs with piece_of()
    return ok();
}

Result<void*> Arena::allocate(size_t bytes) {
    if (bytes > memory_.segment_bytes())
        return fail(error::memory_arena,
                    "{} bytes of mappable memory are more than the arena of this machine has ({} "
                    "bytes)",
                    bytes, memory_.segment_bytes());
    const size_t length = std::max(page_bytes(), (bytes + page_bytes() - 1) / page_bytes() * page_bytes());
    std::lock_guard lock(mutex_);
    const auto find = [&] {
        return std::find_if(free_.begin(), free_.end(), [&](const auto& range) { return range.second >= length; });
    };
    auto place = find();
    if (place == free_.end()) {
        WEFT_TRY(grow(length));
        place = find();
    }
    const auto [offset, available] = *place;
    Piece& piece = piece_at(offset);
    WEFT_TRY(piece.memory(memory_).back(offset - piece.offset, length));
    free_.erase(place);
    if (available > length) free_[offset + length] = available - length;
    used_[offset] = length;
    return static_cast<void*>(piece.data + (offset - piece.offset));
}

Status Arena::free(void* address) {
    std::lock_guard lock(mutex_);
    const Piece* const here = piece_of(address, 1);
    const size_t offset = here ? here->offset + size_t(static_cast<std::byte*>(address) - here->data) : 0;
    const auto place = here ? used_.find(offset) : used_.end();
    if (place == used_.end())
        return fail(error::memory_not_allocated,
                    "{} was not allocated by weftHostAlloc or weftMemAlloc in this process, or was freed already",
                    address);
    const size_t length = place->second;
    used_.erase(place);
    Piece& piece = piece_at(offset);
    piece.memory(memory_).release(offset - piece.offset, length);
    // Ranges are merged within a piece only: the next piece is mapped elsewhere.
    auto next = free_.emplace(offset, length).first;
    if (auto after = std::next(next);
        after != free_.end() && next->first + next->second == after->first && &piece_at(after->first) == &piece) {
        next->second += after->second;
        free_.erase(after);
    }
    if (next != free_.begin())
        if (auto before = std::prev(next);
            before->first + before->second == next->first && &piece_at(before->first) == &piece) {
            before->second += next->second;
            free_.erase(next);
        }
    return ok();
}

Arena::Piece& Arena::piece_at(size_t offset) {
    size_t index = piece_count_.load(std::memory_order_relaxed) - 1;
    while (pieces_[index].offset > offset) --index;
    return pieces_[index];
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

}  // namespace weft::internal
