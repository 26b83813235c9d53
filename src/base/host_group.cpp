#include "src/base/host_group.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <mutex>

#include "src/base/clock.hpp"

namespace weft {

namespace {

constexpr uint64_t segment_magic = 0x3174666577000001u;
constexpr uint32_t segment_version = WEFT_VERSION_CODE;

// The letters lie at the end of a rank's heap, backed in steps.
struct alignas(64) Letter {
    uint64_t key;
    uint32_t bytes;
    std::byte data[HostGroup::letter_bytes];
};
static_assert(sizeof(Letter) == 128);
constexpr size_t letters_offset = HostGroup::connections_end;
constexpr size_t letters_step = 32;

struct ProcessToken {
    std::atomic<uint64_t> value{0};
    static void draw();
};
ProcessToken token;

void ProcessToken::draw() {
    uint64_t value = 0;
    while (value == 0)
        if (getrandom(&value, sizeof value, 0) != sizeof value) value = uint64_t(getpid()) << 32 ^ uint64_t(now_us());
    token.value.store(value, std::memory_order_relaxed);
}

}  // namespace

uint64_t process_token() {
    static const bool drawn = [] {
        ProcessToken::draw();
        pthread_atfork(nullptr, nullptr, ProcessToken::draw);
        return true;
    }();
    (void)drawn;
    return token.value.load(std::memory_order_relaxed);
}

uint64_t process_token_address() { return reinterpret_cast<uint64_t>(&token.value); }

Result<std::shared_ptr<HostGroup>> HostGroup::create(int ranks) {
    const HostGeometry geometry{ranks};
    auto memory = SharedMemory::create("weft", geometry.bytes());
    if (!memory) return memory.take_status();
    auto group = std::make_shared<HostGroup>(std::move(*memory), ranks);
    WEFT_TRY(group->memory_.back(0, geometry.heap(0)));
    HostHeader& header = group->header();
    header.magic = segment_magic;
    header.version = segment_version;
    header.ranks = ranks;
    for (int rank = 0; rank < ranks; ++rank) group->row(rank).cpu.store(-1, std::memory_order_relaxed);
    return group;
}

Result<std::shared_ptr<HostGroup>> HostGroup::map(Fd fd) {
    auto memory = SharedMemory::map(std::move(fd));
    if (!memory) return memory.take_status();
    const auto* header = reinterpret_cast<const HostHeader*>(memory->data());
    if (memory->bytes() < sizeof *header || header->magic != segment_magic || header->version != segment_version ||
        header->ranks < 1 || header->ranks > max_ranks_per_host ||
        memory->bytes() != HostGeometry{header->ranks}.bytes())
        return fail(weftInternalError, "the segment passed by another process is not one of this library's version");
    const int ranks = header->ranks;
    return std::make_shared<HostGroup>(std::move(*memory), ranks);
}

bool HostGroup::alive(int rank) const {
    if (row(rank).process == process_token()) return true;
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    if (fcntl(memory_.fd(), F_GETLK, &lock) != 0) return true;  // cannot tell: do not accuse
    return lock.l_type != F_UNLCK;
}

Status HostGroup::mark_alive(int rank) const {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    if (fcntl(memory_.fd(), F_SETLK, &lock) != 0)
        return fail(weftSystemError, "rank {} could not lock its row in the shared segment: {}", rank,
                    errno_text(errno));
    return ok();
}

int HostGroup::cores() const {
    CpuSet all;
    for (int rank = 0; rank < ranks(); ++rank) all |= row(rank).cpus;
    return all.count();
}

bool HostGroup::raise(weftResult_t code, int rank, std::string_view sentence) {
    AbortRecord& record = header().abort;
    uint32_t none = 0;
    if (!record.state.compare_exchange_strong(none, 1)) return false;
    record.code = code;
    record.rank = rank;
    const size_t length = std::min(sentence.size(), sizeof record.sentence - 1);
    memcpy(record.sentence, sentence.data(), length);
    record.sentence[length] = 0;
    record.state.store(2, std::memory_order_release);
    wake_sleepers();
    syscall(SYS_futex, &header().joined, FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);  // those who still wait for others to join
    return true;
}

Status HostGroup::abort_status() const {
    const AbortRecord& record = header().abort;
    const int64_t patience = now_us() + 200'000;
    while (record.state.load(std::memory_order_acquire) == 1 && now_us() < patience) sched_yield();
    switch (record.state.load(std::memory_order_acquire)) {
        case 0: return ok();
        case 1: return {weftRemoteError, "a rank died while it was reporting an error"};
        default: return {record.code, record.sentence};
    }
}

void HostGroup::wake_sleepers() {
    for (int rank = 0; rank < ranks(); ++rank) {
        auto& sleeping = row(rank).sleeping;
        if (sleeping.load(std::memory_order_relaxed) && sleeping.exchange(0))
            syscall(SYS_futex, &sleeping, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
}

Status HostGroup::post_letter(int rank, uint64_t key, const void* data, size_t bytes) {
    auto& count = row(rank).letters;
    const uint32_t index = count.load(std::memory_order_relaxed);
    if (index >= letters_max || bytes > letter_bytes)
        return fail(weftInternalError, "rank {} has no room for a letter of {} bytes ({} posted)", rank, bytes, index);
    if (index % letters_step == 0)
        WEFT_TRY(back(rank, letters_offset + index * sizeof(Letter), letters_step * sizeof(Letter)));
    Letter& letter = reinterpret_cast<Letter*>(heap(rank) + letters_offset)[index];
    letter.key = key;
    letter.bytes = uint32_t(bytes);
    memcpy(letter.data, data, bytes);
    count.store(index + 1, std::memory_order_release);  // pairs with find_letter()
    wake();
    return ok();
}

const std::byte* HostGroup::find_letter(int rank, uint64_t key) const {
    const uint32_t count = std::min<uint32_t>(row(rank).letters.load(std::memory_order_acquire), uint32_t(letters_max));
    const auto* letters = reinterpret_cast<const Letter*>(heap(rank) + letters_offset);
    for (uint32_t i = 0; i < count; ++i)
        if (letters[i].key == key) return letters[i].data;
    return nullptr;
}

}  // namespace weft
