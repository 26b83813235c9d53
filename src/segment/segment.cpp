#include "src/segment/segment.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>

#include "src/base/rank_set.hpp"
#include "src/base/wire_version.hpp"

namespace weft::internal {

namespace {

constexpr uint64_t segment_magic = 0x3174666577000001u;
constexpr uint32_t segment_version = wire_version;

}  // namespace

Segment::Segment(SharedMemory memory, int ranks)
    : memory_(std::move(memory)), rows_offset_(SegmentLayout{ranks, 0}.rows()), places_(size_t(ranks), -1) {}

Result<std::shared_ptr<Segment>> Segment::create(int ranks, bool settled) {
    const SegmentLayout whole{ranks, ranks, SegmentLayout::affordable_heap_bytes(ranks)};
    auto memory = SharedMemory::create("weft", whole.bytes(), whole.lines());
    if (!memory) return memory.take_status();
    auto segment = std::make_shared<Segment>(std::move(*memory), ranks);
    WEFT_TRY(segment->memory_.back(0, whole.host_infos()));
    SegmentHeader& header = segment->header();
    header.magic = segment_magic;
    header.version = segment_version;
    header.ranks = ranks;
    header.heap_bytes = whole.heap_bytes;
    if (settled) WEFT_TRY(segment->settle());
    return segment;
}

Result<std::shared_ptr<Segment>> Segment::map(Fd fd, bool settled) {
    WEFT_TRY(SharedMemory::check_sealed(fd.number()));
    const auto foreign = [] {
        return fail(error::internal_state,
                    "the segment that another process passed is of another version of this library");
    };
    struct {
        uint64_t magic;
        uint32_t version;
        int32_t ranks;
        uint64_t heap_bytes;
    } head{};
    static_assert(offsetof(SegmentHeader, heap_bytes) == offsetof(decltype(head), heap_bytes));
    if (pread(fd.number(), &head, sizeof head, 0) != sizeof head || head.magic != segment_magic ||
        head.version != segment_version || head.ranks < 1 || head.ranks > max_ranks ||
        head.heap_bytes < SegmentLayout::heap_bytes_least || head.heap_bytes > SegmentLayout::heap_bytes_most ||
        head.heap_bytes % page_bytes() != 0)
        return foreign();
    const SegmentLayout whole{head.ranks, head.ranks, head.heap_bytes};
    auto memory = SharedMemory::map(std::move(fd), whole.lines());
    if (!memory) return memory.take_status();
    if (memory->segment_bytes() != whole.bytes()) return foreign();
    auto segment = std::make_shared<Segment>(std::move(*memory), head.ranks);
    if (settled) WEFT_TRY(segment->settle());
    return segment;
}

Status Segment::settle() {
    std::lock_guard lock(settling_);
    if (settled_.load(std::memory_order_relaxed)) return ok();
    const bool spread = !one_host();
    std::vector<int> locals;
    for (int rank = 0; rank < ranks(); ++rank)
        if (!spread || rank_info(rank).host == header().own_host) locals.push_back(rank);
    WEFT_TRY(heaps_.map(memory_, {ranks(), int(locals.size()), header().heap_bytes}));
    for (size_t place = 0; place < locals.size(); ++place) places_[size_t(locals[place])] = int(place);
    locals_ = std::move(locals);
    settled_.store(true, std::memory_order_release);
    return ok();
}

std::string Segment::name_of(int rank) const {
    const int pid = rank_info(rank).pid.load(std::memory_order_acquire);
    if (one_host()) return fmt::format("rank {} (pid {})", rank, pid);
    return fmt::format("rank {} (pid {} on {})", rank, pid, host_info(rank_info(rank).host).name);
}

Status Segment::write(size_t offset, const void* data, size_t bytes) {
    if (!memory_.contains(memory_.data() + offset, bytes))
        return fail(error::internal_state, "{} bytes at {} do not fit the segment", bytes, offset);
    WEFT_TRY(memory_.back(offset, bytes));
    if (bytes > 0) memcpy(memory_.data() + offset, data, bytes);
    return ok();
}

void Segment::wake_sleepers() {
    if (!settled()) return;  // no rank is in a call
    for (const int rank : locals_) {
        auto& sleeping = row(rank).sleeping;
        if (sleeping.load(std::memory_order_relaxed) && sleeping.exchange(0))
            syscall(SYS_futex, &sleeping, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
}

bool one_process(const Segment& segment) {
    for (int rank = 1; rank < segment.ranks(); ++rank)
        if (!segment.same_process(0, rank)) return false;
    return true;
}

std::string ranks_text(const std::vector<int>& ascending) {
    constexpr int most_runs = 8;
    std::string text = ascending.size() == 1 ? "rank " : "ranks ";
    int runs = 0;
    for (size_t first = 0; first < ascending.size();) {
        size_t last = first;
        while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
        if (++runs > most_runs) return text + fmt::format(" and {} more", ascending.size() - first);
        if (runs > 1) text += ", ";
        text += last > first ? fmt::format("{} to {}", ascending[first], ascending[last])
                             : fmt::format("{}", ascending[first]);
        first = last + 1;
    }
    return text;
}

}  // namespace weft::internal
