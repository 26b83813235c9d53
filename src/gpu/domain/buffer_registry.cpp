#include "src/gpu/domain/buffer_registry.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/base/process_token.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/peer_access/peer_memory.hpp"
#include "src/segment/liveness.hpp"
#include "src/segment/oob_store.hpp"

namespace weft::internal::cuda {

namespace {

constexpr int64_t answer_patience_us = 2'000'000;  // service threads call look() every 50 ms
constexpr int64_t leave_patience_us = 10'000'000;  // other work on the device may delay the unmapping

}  // namespace

BufferRegistry::BufferRegistry(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels)
    : segment_(std::move(group)),
      rank_(rank),
      ranks_(segment_->ranks()),
      kernels_(std::move(kernels)),
      trusts_(options().gpu_trust_pointers != 0),
      pieces_(segment_, rank_, kernels_),
      looked_(size_t(ranks_), 0) {
    if (rank_ != 0 || one_process(*segment_)) return;
    const size_t bytes = RegistrationTables::bytes(ranks_);
    weft::internal::PeerMemory shared{};
    auto memory = SharedMemory::create("weft-device-tables", bytes);
    Status status = memory ? RegistrationTables::back_heads(*memory) : memory.take_status();
    if (status) {
        made_ = std::move(*memory);
        shared = {getpid(), made_.fd(), process_token(), made_.inode()};
        status = OobStore(*segment_).put(rank_, rank_, registration_oob_key, &shared, sizeof shared);
    }
    if (!status) WEFT_LOG_RANK(rank_, info, mem, "device memory cannot be registered: {}", status.sentence());
}

// Without tables nothing is registered, which costs only time. The others are informed, because this rank cannot reply.
void BufferRegistry::open() {
    const std::byte* found = OobStore(*segment_).get(0, registration_oob_key);
    if (found == nullptr) return;
    weft::internal::PeerMemory where;
    memcpy(&where, found, sizeof where);
    auto tables = map_peer_memory(where);
    if (!tables) {
        WEFT_LOG_RANK(rank_, info, mem, "device memory cannot be registered: {}", tables.status().sentence());
        const Status announced =
            OobStore(*segment_).put(rank_, rank_, registration_without_tables_key, &rank_, sizeof rank_);
        if (!announced)
            WEFT_LOG_RANK(rank_, info, mem, "other ranks cannot be informed of that: {}", announced.sentence());
        return;
    }
    mapper_ = std::make_shared<RegistrationMapper>(segment_, rank_, kernels_, std::move(*tables));
    mapper_->table(rank_).here.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(
        std::memory_order_seq_cst);  // pairs with close(): that rank waits for us, or we see the entry closed
}

BufferRegistry::~BufferRegistry() {
    if (!mapper_) return;
    const int entries = int(own_.size());
    for (int entry = 0; entry < entries; ++entry)
        if (RegistrationEntry::is_open(own_[size_t(entry)].state)) close(entry);
    mapper_->leave_soon();
    const int64_t begin_us = now_us();
    bool all = true;
    for (int entry = 0; entry < entries && all; ++entry) all = await_answers(entry, begin_us + answer_patience_us);
    while (mapper_->table(rank_).left.load(std::memory_order_acquire) == 0 && now_us() < begin_us + leave_patience_us)
        usleep(1000);
    if (!all) WEFT_LOG_RANK(rank_, warn, mem, "leaves although other ranks may still map registered device memory");
}

std::vector<int> BufferRegistry::unanswered(int entry) const {
    std::vector<int> ranks;
    for (int peer = 0; peer < ranks_; ++peer) {
        if (segment_->same_process(rank_, peer)) continue;
        const RegistrationTable& theirs = mapper_->table(peer);
        if (mapper_->tables().reply(rank_, entry, peer).state.load(std::memory_order_acquire) !=
                own_[size_t(entry)].state &&
            theirs.here.load(std::memory_order_relaxed) != 0 && theirs.left.load(std::memory_order_acquire) == 0 &&
            Liveness(*segment_).alive(peer))
            ranks.push_back(peer);
    }
    return ranks;
}

bool BufferRegistry::await_answers(int entry, int64_t until_us) const {
    while (!unanswered(entry).empty()) {
        if (now_us() > until_us) return false;
        usleep(1000);
    }
    return true;
}

void BufferRegistry::close(int entry) {
    OwnEntry& own = own_[size_t(entry)];
    ++own.state;
    std::erase_if(by_base_, [entry](const auto& each) { return each.second == entry; });
    if (!mapper_) return;
    pieces_.withdraw(entry);
    RegistrationTable& mine = mapper_->table(rank_);
    mapper_->tables().entry(rank_, entry).state.store(own.state, std::memory_order_release);
    mine.changes.fetch_add(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with open()
}

Result<int> BufferRegistry::add(const void* address, size_t bytes, RegistrationUse use) {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    const Driver& driver = kernels_->driver();
    const auto place = reinterpret_cast<CUdeviceptr>(address);
    auto facts = describe_pointer(driver, address);
    if (!facts) return facts.take_status();
    const bool vmm = facts->kind == MemoryKind::vmm;
    // With one process there are no tables.
    if (!mapper_ && !one_process(*segment_))
        return fail(error::gpu_registrations,
                    "all ranks are in this process, or no other process shares memory with it");
    CUdeviceptr base = 0;
    size_t size = 0;
    std::vector<VmmPiece> pieces;
    if (vmm) {
        auto shared = pieces_.find(address, bytes);
        if (!shared) return shared.take_status();
        pieces = std::move(*shared);
        base = pieces.front().address;
        size = pieces.back().address + pieces.back().bytes - base;
    } else {
        WEFT_TRY(
            driver.check(driver.MemGetAddressRange(&base, &size, place), "find the allocation around {}", address));
    }
    if (bytes > base + size - place)
        return fail(error::memory_bounds, "{} bytes at {} reach beyond their allocation", bytes, address);
    const auto [first, last] = by_base_.equal_range(base);
    for (auto each = first; each != last; ++each) {
        OwnEntry& own = own_[size_t(each->second)];
        if (own.bytes != size) continue;
        own.buffers += use == RegistrationUse::buffer;
        return ++own.users, each->second;
    }
    IpcExport exported{};
    if (!vmm) {
        auto handle = export_ipc(driver, base);
        if (!handle) return handle.take_status();
        exported = *handle;
    }
    auto unused = unused_entry();
    if (!unused) return unused;
    const int entry = *unused;
    uint64_t fds_id = 0;
    if (vmm && mapper_) {
        auto posted = pieces_.post(pieces, mapper_->table(rank_));
        if (!posted) return posted.take_status();
        fds_id = *posted;
    }
    OwnEntry& own = own_[size_t(entry)];
    own = {base, size, own.state + 1, 1, use == RegistrationUse::buffer, 0, vmm};
    by_base_.emplace(base, entry);
    longest_ = std::max(longest_, size);
    if (!mapper_) return entry;
    RegistrationEntry& published = mapper_->tables().entry(rank_, entry);
    published.handle = exported.handle;
    published.fds_id = fds_id;
    published.state.store(own.state, std::memory_order_release);  // pairs with serve()
    pieces_.keep(entry, fds_id);
    mapper_->table(rank_).changes.fetch_add(1, std::memory_order_release);
    return entry;
}

Result<int> BufferRegistry::unused_entry() {
    for (int entry = 0; entry < int(own_.size()); ++entry)
        if (own_[size_t(entry)].users == 0 && unanswered(entry).empty()) return entry;
    WEFT_TRY(grow());
    return int(own_.size()) - 1;
}

Status BufferRegistry::grow() {
    const int entry = int(own_.size());
    if (entry == entries_max)
        return fail(error::gpu_registrations,
                    "{} allocations, which is the most, are registered or still mapped by other ranks", entries_max);
    if (mapper_ && entry % RegistrationTables::chunk_entries == 0) WEFT_TRY(mapper_->tables().back(rank_, entry));
    own_.emplace_back();
    if (mapper_) mapper_->table(rank_).count.store(uint32_t(own_.size()), std::memory_order_release);
    return ok();
}

void BufferRegistry::begin_to_remove(int entry, RegistrationUse use) {
    OwnEntry& own = own_[size_t(entry)];
    if (!RegistrationEntry::is_open(own.state)) return;  // called again after a timeout
    own.buffers -= use == RegistrationUse::buffer;
    if (++own.ending == own.users) close(entry);
}

bool BufferRegistry::removed(int entry) {
    OwnEntry& own = own_[size_t(entry)];
    const bool open = RegistrationEntry::is_open(own.state);  // others use it
    if (!open && !unanswered(entry).empty()) return false;
    own.ending -= open;
    --own.users;
    return true;
}

Status BufferRegistry::remove(int entry, RegistrationUse use) {
    begin_to_remove(entry, use);
    for (const int64_t until_us = now_us() + answer_patience_us; !removed(entry); usleep(1000)) {
        if (now_us() < until_us) continue;
        std::string ranks;
        for (const int rank : unanswered(entry)) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
        return fail(error::gpu_still_mapped,
                    "the buffer is still mapped by rank {}, where a call may wait for this rank: do not free the "
                    "buffer; deregister it again on all ranks before the next call",
                    ranks);
    }
    return ok();
}

BufferRegistry::RegisteredAddress BufferRegistry::registered_address(int entry, const void* address) const {
    const OwnEntry& own = own_[size_t(entry)];
    return {entry, own.state, reinterpret_cast<uintptr_t>(address) - own.base};
}

std::optional<std::byte*> BufferRegistry::reach(int owner, const RegisteredAddress& place) const {
    if (!mapper_) return nullptr;
    const RegistrationReply& reply = mapper_->tables().reply(owner, place.entry, rank_);
    const uint64_t state = reply.state.load(std::memory_order_acquire);  // pairs with serve()
    if (state < place.state) return {};
    // The set will be asked for again.
    if (state == place.state && reply.wanted.load(std::memory_order_acquire) != 0) return {};
    const uint64_t base = state == place.state ? reply.address.load(std::memory_order_acquire) : 0;
    return base == 0 ? nullptr : reinterpret_cast<std::byte*>(base + place.offset);
}

int BufferRegistry::entry_around(const void* address, size_t bytes, RegistrationUse use) const {
    const auto place = reinterpret_cast<uintptr_t>(address);
    // Allocations may overlap: several buffers of VMM memory. The nearest one below usually has the buffer.
    for (auto next = by_base_.upper_bound(place); next != by_base_.begin();) {
        const auto& [base, entry] = *--next;
        const OwnEntry& own = own_[size_t(entry)];
        if (place - base > longest_) break;
        if (own.buffers == 0 && use == RegistrationUse::buffer) continue;
        if (place - base <= own.bytes && bytes <= own.bytes - (place - base)) return entry;
    }
    return -1;
}

bool BufferRegistry::find(const void* address, size_t bytes, bool mapped, std::byte* (&at)[ranks_max],
                          RegistrationUse use) const {
    const auto place = reinterpret_cast<uintptr_t>(address);
    const int found = entry_around(address, bytes, use);
    for (int peer = 0; peer < ranks_; ++peer) {
        if (segment_->same_process(rank_, peer)) {
            // Registered memory is in reach of all ranks of this process, if it is still there.
            if (!mapped && (found < 0 || !(own_[size_t(found)].vmm || trusts_))) return false;
            at[peer] = reinterpret_cast<std::byte*>(place);
            continue;
        }
        if (found < 0) return false;
        const RegistrationReply& reply = mapper_->tables().reply(rank_, found, peer);
        if (reply.state.load(std::memory_order_acquire) != own_[size_t(found)].state) return false;
        const uint64_t base = reply.address.load(std::memory_order_acquire);
        if (base == 0) return false;
        at[peer] = reinterpret_cast<std::byte*>(base + (place - own_[size_t(found)].base));
    }
    return true;
}

void BufferRegistry::look() {
    if (!mapper_) return;
    bool due = false;
    std::unique_lock lock(looking_, std::try_to_lock);
    if (!lock) return;  // another thread looks
    pieces_.withdraw_fetched(*mapper_);
    due = mapper_->take_due();
    for (int owner = 0; owner < ranks_; ++owner) {
        const uint64_t changes = mapper_->table(owner).changes.load(std::memory_order_acquire);
        due |= changes != looked_[size_t(owner)];
        looked_[size_t(owner)] = changes;
    }
    if (!due) return;
    mapper_->serve_soon();
}

}  // namespace weft::internal::cuda
