#include "src/segment/segment.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <mutex>

#include "src/base/clock.hpp"
#include "src/base/file.hpp"
#include "src/base/wire_version.hpp"

namespace weft::internal {

namespace {

constexpr uint64_t segment_magic = 0x3174666577000001u;
constexpr uint32_t segment_version = wire_version;

}  // namespace

uint64_t pid_namespace() {
    struct stat status {};
    return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

bool process_stopped(int pid) {
    // The state follows the process name, which may contain any character and ends at the last parenthesis.
    const std::string line = system_file(fmt::format("/proc/{}/stat", pid));
    const size_t end = line.rfind(')');
    return end != std::string::npos && end + 2 < line.size() && (line[end + 2] == 'T' || line[end + 2] == 't');
}

size_t SegmentLayout::affordable_heap_bytes(int ranks) {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return heap_bytes_most;
    const size_t page = page_bytes();
    return std::clamp(size_t(limit.rlim_cur) / 4 / size_t(ranks + 1) / page * page, heap_bytes_least, heap_bytes_most);
}

Segment::Segment(SharedMemory memory, int ranks, size_t heap_bytes)
    : memory_(std::move(memory)),
      heap_bytes_(heap_bytes),
      rows_offset_(SegmentLayout{ranks, 0}.rows()),
      data_offset_(SegmentLayout{ranks, 0}.lines()),
      places_(size_t(ranks), -1) {}

Result<std::shared_ptr<Segment>> Segment::create(int ranks, bool settled) {
    const SegmentLayout whole{ranks, ranks, SegmentLayout::affordable_heap_bytes(ranks)};
    auto memory = SharedMemory::create("weft", whole.bytes(), whole.lines());
    if (!memory) return memory.take_status();
    auto segment = std::make_shared<Segment>(std::move(*memory), ranks, whole.heap_bytes);
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
    auto segment = std::make_shared<Segment>(std::move(*memory), head.ranks, head.heap_bytes);
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
    const SegmentLayout geometry{ranks(), int(locals.size()), heap_bytes_};
    auto data = SharedMemory::window(memory_, data_offset_, geometry.bytes() - data_offset_);
    if (!data) return data.take_status();
    WEFT_TRY(data->back(0, geometry.lines_bytes()));
    for (size_t place = 0; place < locals.size(); ++place) places_[size_t(locals[place])] = int(place);
    locals_ = std::move(locals);
    data_ = std::move(*data);
    settled_.store(true, std::memory_order_release);
    return ok();
}

std::string Segment::name_of(int rank) const {
    const int pid = rank_info(rank).pid.load(std::memory_order_acquire);
    if (one_host()) return fmt::format("rank {} (pid {})", rank, pid);
    return fmt::format("rank {} (pid {} on {})", rank, pid, host_info(rank_info(rank).host).name);
}

Status Segment::set_host_infos(const std::vector<HostInfo>& hosts) {
    const size_t offset = SegmentLayout{ranks(), 0}.host_infos(), bytes = hosts.size() * sizeof(HostInfo);
    WEFT_TRY(memory_.back(offset, bytes));
    memcpy(memory_.data() + offset, hosts.data(), bytes);
    return ok();
}

Status Segment::write_texts(const void* data, size_t bytes) {
    const size_t offset = SegmentLayout{ranks(), 0}.texts();
    const uint64_t length = bytes;
    if (bytes > texts_most)
        return fail(error::internal_state, "the texts of a communicator have {} bytes; there is room for {}", bytes,
                    texts_most);
    WEFT_TRY(memory_.back(offset, sizeof length + bytes));
    memcpy(memory_.data() + offset, &length, sizeof length);
    if (bytes > 0) memcpy(memory_.data() + offset + sizeof length, data, bytes);
    return ok();
}

std::span<const std::byte> Segment::texts() const {
    const std::byte* place = memory_.data() + SegmentLayout{ranks(), 0}.texts();
    uint64_t length = 0;
    memcpy(&length, place, sizeof length);
    return {place + sizeof length, std::min<uint64_t>(length, texts_most)};
}

bool Segment::alive(int rank) const {
    if (row(rank).process == process_token()) return true;
    if (settled_.load(std::memory_order_acquire) && !local(rank))
        return row(rank).state.load(std::memory_order_acquire) != RankState::dead;
    // A lost lock does not prove death: a program that closes Weft's descriptors loses its locks, too. But that process
    // still maps the segment, and an ending process unmaps its memory before it loses its locks.
    const bool ours = memory_.descriptor_intact();
    if (ours && locked_elsewhere(rank)) return true;
    const RankRow& other = row(rank);
    if (other.pid_namespace != 0 && other.pid_namespace == pid_namespace()) return mapped_by(other);
    return !ours;  // we cannot tell: do not accuse
}

static struct flock lock_of(int rank, short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
}

bool Segment::locked_elsewhere(int rank) const {
    struct flock lock = lock_of(rank, F_WRLCK);
    // Unknown: report no death.
    if (!memory_.descriptor_intact() || fcntl(memory_.fd(), F_GETLK, &lock) != 0) return true;
    return lock.l_type != F_UNLCK;
}

bool Segment::mapped_by(const RankRow& row) const {
    const std::string maps = system_file(fmt::format("/proc/{}/maps", row.pid));
    return maps.find(fmt::format(" {} ", memory_.inode())) != std::string::npos &&
           maps.find("/memfd:weft") != std::string::npos;
}

Status Segment::returned_error(int rank) const {
    const auto position = row(rank).position.read();
    if (!position) return ok();
    auto failure = row(rank).returned_error.read(position->entered);
    return failure ? Status(std::move(*failure)) : ok();
}

bool Segment::stopped(int rank) const {
    if (!local(rank)) return row(rank).remote.stopped.load(std::memory_order_acquire) != 0;
    if (row(rank).process == process_token()) return false;  // the calling process runs
    return process_stopped(row(rank).pid);
}

Status Segment::claim(int rank) {
    // Lock first: a rank that is claimed but not locked counts as dead.
    struct flock lock = lock_of(rank, F_WRLCK);
    auto& told = rank_info(rank).claimant_pid;
    if (fcntl(memory_.fd(), F_SETLK, &lock) == 0) {
        uint64_t other = 0;
        if (rank_info(rank).claimant.compare_exchange_strong(other, process_token(), std::memory_order_acq_rel)) {
            told.store(getpid(), std::memory_order_release);
            return ok();
        }
        // The lock belongs to the process, so another thread of this process may have claimed the rank.
        if (other != process_token()) {
            lock.l_type = F_UNLCK;
            fcntl(memory_.fd(), F_SETLK, &lock);
        }
    } else if (errno != EACCES && errno != EAGAIN) {
        return fail(error::system_call, "rank {} could not lock its row in the shared segment: {}", rank,
                    errno_text(errno));
    }
    // until the claimant has stored its pid
    for (int i = 0; i < 1000 && told.load(std::memory_order_acquire) == 0; ++i) usleep(1000);
    if (rank_info(rank).claimant.load(std::memory_order_acquire) == process_token())
        return fail(error::mismatch_rank_twice, "process {} joined twice as rank {} of {}", getpid(), rank, ranks());
    return fail(error::mismatch_rank_twice, "two processes are rank {} of {}: pid {} and pid {}", rank, ranks(),
                told.load(std::memory_order_acquire), getpid());
}

bool Segment::died_joining(int rank) const {
    const uint64_t claimant = rank_info(rank).claimant.load(std::memory_order_acquire);
    if (claimant == 0 || claimant == process_token() || locked_elsewhere(rank)) return false;
    // Read after the lock: the rank may have joined, left and ended since.
    return rank_info(rank).pid.load(std::memory_order_acquire) == 0;
}

void Segment::mark_dead(int rank) {
    if (!back_rows(rank, 1)) return;
    // Rows of remote ranks stay zero until their leader reports.
    RankState living = local(rank) ? RankState::joined : row(rank).state.load();
    if (living != RankState::joined && living != RankState::absent) return;
    if (row(rank).state.compare_exchange_strong(living, RankState::dead)) wake_sleepers();
}

CpuSet Segment::cpus() const {
    CpuSet all;
    for (const int rank : locals_) all |= row(rank).cpus;
    return all;
}

int Segment::cores() const {
    CpuShare all;
    for (const int rank : locals_) all.add(row(rank).cpus, row(rank).quota);
    return all.cores();
}

bool Segment::raise(ErrorId error, int rank, std::string_view sentence, const FailureFacts& facts) {
    AbortRecord& record = header().abort;
    uint32_t none = 0;
    if (!record.state.compare_exchange_strong(none, 1)) return false;
    std::string_view(row_of(error).id).copy(record.id, sizeof record.id - 1);
    record.rank = rank;
    record.facts = facts;
    const size_t length = std::min(sentence.size(), sizeof record.sentence - 1);
    memcpy(record.sentence, sentence.data(), length);
    record.sentence[length] = 0;
    record.state.store(2, std::memory_order_release);
    wake_sleepers();
    syscall(SYS_futex, &header().joined, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    ring();
    return true;
}

Status Segment::abort_status() const {
    const AbortRecord& record = header().abort;
    const int64_t patience = now_us() + 200'000;
    while (record.state.load(std::memory_order_acquire) == 1 && now_us() < patience) sched_yield();
    switch (record.state.load(std::memory_order_acquire)) {
        case 0: return ok();
        case 1: return fail(error::rank_failed, "a rank died, or was stopped, while it was reporting an error");
        default:
            return Status(
                Failure{error_named(record.id).value_or(error::internal_state), record.sentence, record.facts});
    }
}

void Segment::wake_sleepers() {
    if (!settled_.load(std::memory_order_acquire)) return;  // no rank is in a call
    for (const int rank : locals_) {
        auto& sleeping = row(rank).sleeping;
        if (sleeping.load(std::memory_order_relaxed) && sleeping.exchange(0))
            syscall(SYS_futex, &sleeping, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
}

LocalOobStore Segment::local_oob(int rank) const {
    return {data_, heap_offset(place(rank)) + connections_end(), row(rank).oob_entries};
}

RemoteOobStore Segment::remote_oob() const {
    return {data_, heap_offset(int(locals_.size())), heap_bytes_, locals_.size(), header().oob_received};
}

Status Segment::oob_put(int rank, int to, uint64_t key, const void* data, size_t bytes) {
    WEFT_TRY(local_oob(rank).put(data_, rank, to, key, data, bytes));
    wake();
    if (!local(to)) ring();
    return ok();
}

const std::byte* Segment::oob_get(int rank, uint64_t key) const {
    return local(rank) ? local_oob(rank).get(key) : remote_oob().get(rank, key);
}

const OobEntry* Segment::next_outgoing_oob(int rank, uint32_t& index) const {
    const LocalOobStore store = local_oob(rank);
    while (const OobEntry* entry = store.next(index))
        if (!local(entry->to)) return entry;
    return nullptr;
}

Status Segment::oob_deliver(const OobEntry& entry) {
    WEFT_TRY(remote_oob().deliver(data_, entry));
    wake();
    return ok();
}

void Segment::ring() const {
    if (doorbell_) ring_event(doorbell_);
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
