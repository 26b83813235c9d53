#include "src/executor/cuda/registrations.hpp"

#include <unistd.h>

#include <cstring>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/peer_memory.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/cuda/stream.hpp"

namespace weft::cuda {

namespace {

constexpr uint64_t letter_key = 0x7265676973746572;
constexpr int64_t answer_patience_us = 2'000'000;  // service threads look every 50 ms
constexpr bool is_open(uint64_t state) { return (state & 1) != 0; }

}  // namespace

struct Registrations::Table {
    struct Entry {
        std::atomic<uint64_t> state;  // (release) after the handle, which stays until all have replied to another one
        CUipcMemHandle handle;
    };
    struct Reply {
        std::atomic<uint64_t> address;  // of the allocation, as this rank's kernels have it; 0: not mapped
        std::atomic<uint64_t> state;    // of the entry, that this is the reply to (release)
    };
    std::atomic<uint64_t> changes;  // of the entries
    std::atomic<uint32_t> left;     // 1: it has unmapped everything, and replies no more (release)
    Entry entries[entries_max];
    Reply replies[ranks_max][entries_max];  // by owner
};

Registrations::Registrations(std::shared_ptr<HostGroup> group, int rank, std::shared_ptr<const KernelSet> kernels)
    : group_(std::move(group)),
      rank_(rank),
      ranks_(group_->ranks()),
      kernels_(std::move(kernels)),
      changes_(size_t(ranks_), 0),
      mapped_(size_t(ranks_)) {
    bool alone = true;
    for (int peer = 0; peer < ranks_; ++peer) alone &= !elsewhere(peer);
    if (rank_ != 0 || alone) return;
    const size_t bytes = sizeof(Table) * size_t(ranks_);
    PeerMemory letter{};
    auto memory = SharedMemory::create("weft-device-tables", bytes);
    Status status = memory ? memory->back(0, bytes) : memory.take_status();
    if (status) {
        made_ = std::move(*memory);
        letter = {getpid(), made_.fd(), process_token(), made_.inode()};
        status = group_->post_letter(rank_, rank_, letter_key, &letter, sizeof letter);
    }
    if (!status) WEFT_LOG_RANK(rank_, info, mem, "device memory cannot be registered: {}", status.sentence());
}

// Without tables nothing is registered, which costs no more than time.
void Registrations::open() {
    const std::byte* letter = group_->find_letter(0, letter_key);
    if (letter == nullptr) return;
    PeerMemory where;
    memcpy(&where, letter, sizeof where);
    auto tables = map_peer_memory(where);
    if (tables)
        tables_ = std::move(*tables);
    else
        WEFT_LOG_RANK(rank_, info, mem, "device memory cannot be registered: {}", tables.status().sentence());
}

Registrations::~Registrations() {
    if (!tables_) return;
    for (int entry = 0; entry < entries_max; ++entry)
        if (is_open(own_[size_t(entry)].state)) close(entry);
    {
        const RelaxedCapture relaxed(kernels_->driver());
        mapped_.clear();
    }
    table(rank_).left.store(1, std::memory_order_release);  // pairs with answered()
    for (int entry = 0; entry < entries_max; ++entry) await_answers(entry);
}

Registrations::Table& Registrations::table(int rank) const { return reinterpret_cast<Table*>(tables_->data())[rank]; }

bool Registrations::answered(int entry) const {
    for (int peer = 0; peer < ranks_; ++peer) {
        if (!elsewhere(peer)) continue;
        const Table& theirs = table(peer);
        if (theirs.replies[rank_][entry].state.load(std::memory_order_acquire) != own_[size_t(entry)].state &&
            theirs.left.load(std::memory_order_acquire) == 0 && group_->alive(peer))
            return false;
    }
    return true;
}

void Registrations::await_answers(int entry) const {
    for (const int64_t until = now_us() + answer_patience_us; !answered(entry); usleep(1000)) {
        if (now_us() < until) continue;
        WEFT_LOG_RANK(rank_, warn, mem, "a registered buffer of device memory may still be mapped by other ranks");
        return;
    }
}

void Registrations::close(int entry) {
    Table& mine = table(rank_);
    mine.entries[entry].state.store(++own_[size_t(entry)].state, std::memory_order_release);
    mine.changes.fetch_add(1, std::memory_order_release);
}

Result<int> Registrations::add(const void* address, size_t bytes) {
    if (!tables_) return fail(weftInvalidUsage, "all ranks are of this process, or none shares memory with it");
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    const Driver& driver = kernels_->driver();
    CUdeviceptr base = 0;
    size_t size = 0;
    WEFT_TRY(driver.check(driver.MemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(address)),
                          "find the allocation around {}", address));
    if (reinterpret_cast<CUdeviceptr>(address) + bytes > base + size)
        return fail(weftInvalidArgument, "{} bytes at {} reach beyond their allocation", bytes, address);
    for (int entry = 0; entry < entries_max; ++entry) {
        Own& own = own_[size_t(entry)];
        if (is_open(own.state) && own.base == base && own.bytes == size) return ++own.users, entry;
    }
    auto exported = export_ipc(driver, base);
    if (!exported) return exported.take_status();
    for (int entry = 0; entry < entries_max; ++entry) {
        Own& own = own_[size_t(entry)];
        if (is_open(own.state) || !answered(entry)) continue;
        Table& mine = table(rank_);
        mine.entries[entry].handle = exported->handle;
        own = {base, size, own.state + 1, 1};
        mine.entries[entry].state.store(own.state, std::memory_order_release);  // pairs with serve()
        mine.changes.fetch_add(1, std::memory_order_release);
        return entry;
    }
    return fail(weftInvalidUsage, "{} allocations are registered already, which is the most", entries_max);
}

void Registrations::remove(int entry) {
    if (--own_[size_t(entry)].users > 0) return;
    close(entry);
    await_answers(entry);
}

bool Registrations::find(const void* address, size_t bytes, bool mapped, std::byte* (&at)[ranks_max]) const {
    const auto place = reinterpret_cast<uintptr_t>(address);
    int found = -1;
    for (int entry = 0; tables_ && entry < entries_max && found < 0; ++entry) {
        const Own& own = own_[size_t(entry)];
        if (is_open(own.state) && place >= own.base && place + bytes <= own.base + own.bytes) found = entry;
    }
    for (int peer = 0; peer < ranks_; ++peer) {
        if (!elsewhere(peer)) {
            if (!mapped) return false;
            at[peer] = reinterpret_cast<std::byte*>(place);
            continue;
        }
        if (found < 0) return false;
        const Table::Reply& reply = table(peer).replies[rank_][found];
        if (reply.state.load(std::memory_order_acquire) != own_[size_t(found)].state) return false;
        const uint64_t base = reply.address.load(std::memory_order_relaxed);
        if (base == 0) return false;
        at[peer] = reinterpret_cast<std::byte*>(base + (place - own_[size_t(found)].base));
    }
    return true;
}

void Registrations::serve(bool idle) {
    if (!tables_) return;
    for (int owner = 0; owner < ranks_; ++owner) {
        if (!elsewhere(owner)) continue;
        const uint64_t changes = table(owner).changes.load(std::memory_order_acquire);
        if (changes == changes_[size_t(owner)]) continue;
        if (serve(owner, idle)) changes_[size_t(owner)] = changes;
    }
}

bool Registrations::serve(int owner, bool idle) {
    const RelaxedCapture relaxed(kernels_->driver());
    bool all = true;
    for (int entry = 0; entry < entries_max; ++entry) {
        const Table::Entry& theirs = table(owner).entries[entry];
        const uint64_t state = theirs.state.load(std::memory_order_acquire);
        Mapped& mapped = mapped_[size_t(owner)][size_t(entry)];
        if (state == mapped.state) continue;
        if (mapped.mapping && !idle) {
            all = false;
            continue;
        }
        mapped = {state, nullptr};
        if (is_open(state)) mapped.mapping = map(owner, theirs.handle);
        Table::Reply& reply = table(rank_).replies[owner][entry];
        reply.address.store(mapped.mapping ? mapped.mapping->base() : 0, std::memory_order_relaxed);
        reply.state.store(state, std::memory_order_release);  // pairs with find() and answered()
    }
    return all;
}

// One mapping an allocation and device, whichever communicators and ranks of the process want it.
std::shared_ptr<IpcMapping> Registrations::map(int owner, const CUipcMemHandle& handle) const {
    std::array<char, sizeof handle.reserved> bytes;
    memcpy(bytes.data(), handle.reserved, bytes.size());
    auto mapping = shared_by_process<IpcMapping>(std::pair(kernels_->context().device(), bytes),
                                                 [&]() -> Result<std::shared_ptr<IpcMapping>> {
                                                     auto opened = IpcMapping::open(kernels_->context(), {handle, 0});
                                                     if (!opened) return opened.take_status();
                                                     return std::make_shared<IpcMapping>(std::move(*opened));
                                                 });
    if (mapping) return *mapping;
    WEFT_LOG_RANK(rank_, info, mem, "cannot map what rank {} has registered, so messages are staged: {}", owner,
                  mapping.status().sentence());
    return nullptr;
}

}  // namespace weft::cuda
