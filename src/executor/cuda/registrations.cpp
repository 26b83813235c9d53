#include "src/executor/cuda/registrations.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <tuple>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/peer_memory.hpp"
#include "src/base/per_process.hpp"
#include "src/base/thread.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/drivers/cuda/stream.hpp"

namespace weft::cuda {

namespace {

constexpr uint64_t registration_letter_key = 0x7265676973746572;
constexpr int64_t answer_patience_us = 2'000'000;  // service threads look every 50 ms
constexpr int64_t fetch_patience_us = 2'000'000;   // a process that is stopped does not hand out descriptors
constexpr int64_t leave_patience_us = 10'000'000;  // what else runs on the device may keep us from unmapping
constexpr bool is_open(uint64_t state) { return (state & 1) != 0; }

// One after the other, on the process's thread for that. False: there is none, and the task waits for the next one.
bool post(std::function<void()> task) {
    struct Queue {
        std::mutex mutex;
        std::deque<std::function<void()>> tasks;
        bool running = false;
    };
    static PerProcess<Queue> of_process;
    Queue& queue = of_process.get();
    std::lock_guard lock(queue.mutex);
    queue.tasks.push_back(std::move(task));
    if (queue.running) return true;
    const Status started = run_detached("weft-mapper", [&queue] {
        std::unique_lock own(queue.mutex);
        while (!queue.tasks.empty()) {
            std::function<void()> next = std::move(queue.tasks.front());
            queue.tasks.pop_front();
            own.unlock();
            try {
                next();
            } catch (const std::exception&) {  // what could not be mapped is staged
            }
            next = nullptr;  // what it has kept alive goes without the lock
            own.lock();
        }
        queue.running = false;
    });
    return queue.running = bool(started);  // else the next who posts tries again
}

}  // namespace

struct Registrations::Table {
    struct Entry {
        // (release) after what follows, which stays until all have replied to another one.
        std::atomic<uint64_t> state;
        CUipcMemHandle handle;
        uint64_t letter;  // of the pieces' descriptors, and their sizes as its text; 0: it is cuMemAlloc's memory
    };
    struct Reply {
        std::atomic<uint64_t> address;  // of the allocation, as this rank's kernels have it; 0: not mapped
        std::atomic<uint64_t> state;    // of the entry, that this is the reply to (release)
    };
    std::atomic<uint64_t> changes;  // of the entries
    std::atomic<uint32_t> here;     // 1: the rank has the tables, and replies
    std::atomic<uint32_t> left;     // 1: it has unmapped everything, and replies no more (release)
    MailAddress mail;               // of the rank's process, once there is a letter
    Entry entries[entries_max];
    Reply replies[ranks_max][entries_max];  // by owner
};

// What the mapping thread works on, which may be busy when the rank leaves.
struct Registrations::Mapper {
    struct Mapped {
        uint64_t state = 0;
        std::shared_ptr<const void> mapping = {};
        CUdeviceptr base = 0;
    };

    Table& table(int owner) const { return reinterpret_cast<Table*>(tables->data())[owner]; }
    void serve();
    void leave();
    Result<Mapped> map(int owner, const Table::Entry& theirs);
    Result<Mapped> map_ipc(const CUipcMemHandle& handle) const;
    Result<Mapped> map_pieces(const MailAddress& from, uint64_t letter) const;

    std::shared_ptr<HostGroup> group;
    int rank;
    std::shared_ptr<const KernelSet> kernels;
    std::shared_ptr<SharedMemory> tables;
    std::atomic<bool> queued{false}, again{false};        // again: it ended before it had seen everything
    std::vector<std::array<Mapped, entries_max>> mapped;  // by owner
    std::vector<bool> silent;  // by owner: one letter has not come in time, and no other is waited for
};

Registrations::Registrations(std::shared_ptr<HostGroup> group, int rank, std::shared_ptr<const KernelSet> kernels)
    : group_(std::move(group)),
      rank_(rank),
      ranks_(group_->ranks()),
      kernels_(std::move(kernels)),
      looked_(size_t(ranks_), 0) {
    if (rank_ != 0 || group_->one_process()) return;
    const size_t bytes = sizeof(Table) * size_t(ranks_);
    weft::PeerMemory letter{};
    auto memory = SharedMemory::create("weft-device-tables", bytes);
    Status status = memory ? memory->back(0, bytes) : memory.take_status();
    if (status) {
        made_ = std::move(*memory);
        letter = {getpid(), made_.fd(), process_token(), made_.inode()};
        status = group_->post_letter(rank_, rank_, registration_letter_key, &letter, sizeof letter);
    }
    if (!status) WEFT_LOG_RANK(rank_, info, mem, "device memory cannot be registered: {}", status.sentence());
}

// Without tables nothing is registered, which costs no more than time.
void Registrations::open() {
    const std::byte* letter = group_->find_letter(0, registration_letter_key);
    if (letter == nullptr) return;
    weft::PeerMemory where;
    memcpy(&where, letter, sizeof where);
    auto tables = map_peer_memory(where);
    if (!tables) {
        WEFT_LOG_RANK(rank_, info, mem, "device memory cannot be registered: {}", tables.status().sentence());
        return;
    }
    mapper_ = std::make_shared<Mapper>();
    mapper_->group = group_;
    mapper_->rank = rank_;
    mapper_->kernels = kernels_;
    mapper_->tables = std::move(*tables);
    mapper_->mapped.resize(size_t(ranks_));
    mapper_->silent.resize(size_t(ranks_));
    mapper_->table(rank_).here.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with close(): it waits for us, or we see it closed
}

Registrations::~Registrations() {
    if (!mapper_) return;
    for (int entry = 0; entry < entries_max; ++entry)
        if (is_open(own_[size_t(entry)].state)) close(entry);
    post([mapper = mapper_] { mapper->leave(); });
    const int64_t begin_us = now_us();
    bool all = true;
    for (int entry = 0; entry < entries_max && all; ++entry) all = await_answers(entry, begin_us + answer_patience_us);
    while (mapper_->table(rank_).left.load(std::memory_order_acquire) == 0 && now_us() < begin_us + leave_patience_us)
        usleep(1000);
    if (!all) WEFT_LOG_RANK(rank_, warn, mem, "leaves although other ranks may still map registered device memory");
}

std::vector<int> Registrations::unanswered(int entry) const {
    std::vector<int> ranks;
    for (int peer = 0; peer < ranks_; ++peer) {
        if (group_->same_process(rank_, peer)) continue;
        const Table& theirs = mapper_->table(peer);
        if (theirs.replies[rank_][entry].state.load(std::memory_order_acquire) != own_[size_t(entry)].state &&
            theirs.here.load(std::memory_order_relaxed) != 0 && theirs.left.load(std::memory_order_acquire) == 0 &&
            group_->alive(peer))
            ranks.push_back(peer);
    }
    return ranks;
}

bool Registrations::await_answers(int entry, int64_t until_us) const {
    while (!unanswered(entry).empty()) {
        if (now_us() > until_us) return false;
        usleep(1000);
    }
    return true;
}

void Registrations::close(int entry) {
    ++own_[size_t(entry)].state;
    if (!mapper_) return;
    withdraw(entry);
    Table& mine = mapper_->table(rank_);
    mine.entries[entry].state.store(own_[size_t(entry)].state, std::memory_order_release);
    mine.changes.fetch_add(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with open()
}

Result<std::vector<VmmPiece>> Registrations::shared_pieces(const void* address, size_t bytes) const {
    const Driver& driver = kernels_->driver();
    auto pieces = vmm_pieces(driver, reinterpret_cast<CUdeviceptr>(address), bytes, pieces_max);
    if (!pieces) return pieces.take_status();
    for (int peer = 0; peer < ranks_; ++peer) {
        const int device = group_->row(peer).device.ordinal;
        if (peer == rank_ || !group_->same_process(rank_, peer) || device == kernels_->context().device()) continue;
        auto opened = vmm_opened(driver, *pieces, device);
        if (!opened) return opened.take_status();
        if (!*opened)
            return fail(weftInvalidUsage,
                        "it is virtual memory that was not opened (cuMemSetAccess) for device {}, where rank {} of "
                        "this process is",
                        device, peer);
    }
    return pieces;
}

Status Registrations::fits(const void* address, size_t bytes) const {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    auto pieces = shared_pieces(address, bytes);
    if (!pieces || group_->one_process()) return pieces.take_status();
    for (const VmmPiece& piece : *pieces)
        if (auto descriptor = export_piece(kernels_->driver(), piece.address); !descriptor)
            return descriptor.take_status();
    return ok();
}

// For the others to fetch.
Status Registrations::post_pieces(const std::vector<VmmPiece>& pieces, uint64_t& letter) {
    MailedDescriptors content;
    std::vector<uint64_t> sizes;
    for (const VmmPiece& piece : pieces) {
        auto descriptor = export_piece(kernels_->driver(), piece.address);
        if (!descriptor) return descriptor.take_status();
        content.descriptors.push_back(std::move(*descriptor));
        sizes.push_back(piece.bytes);
    }
    static_assert(pieces_max * sizeof(uint64_t) <= mailed_text_max);
    const auto text = std::as_bytes(std::span(sizes));
    content.text.assign(text.begin(), text.end());
    if (!mail_) {
        auto mail = DescriptorMail::of_process();
        if (!mail) return mail.take_status();
        mail_ = std::move(*mail);
        mapper_->table(rank_).mail = mail_->address();
    }
    letter = mail_->post(std::move(content));
    return ok();
}

void Registrations::withdraw(int entry) {
    if (const uint64_t letter = letters_[size_t(entry)].exchange(0, std::memory_order_acquire)) mail_->withdraw(letter);
}

// Descriptors are few: nobody keeps one when all have mapped what it stands for.
void Registrations::withdraw_fetched() {
    for (int entry = 0; entry < entries_max; ++entry) {
        uint64_t letter = letters_[size_t(entry)].load(std::memory_order_acquire);  // pairs with add()
        if (letter == 0) continue;
        const uint64_t state = mapper_->table(rank_).entries[entry].state.load(std::memory_order_relaxed);
        bool fetched = true;
        for (int peer = 0; peer < ranks_ && fetched; ++peer) {
            const Table& theirs = mapper_->table(peer);
            fetched = group_->same_process(rank_, peer) ||
                      theirs.replies[rank_][entry].state.load(std::memory_order_acquire) == state ||
                      theirs.left.load(std::memory_order_acquire) != 0 || !group_->alive(peer);
        }
        // The rank may have closed the entry meanwhile, and posted another letter.
        if (fetched && letters_[size_t(entry)].compare_exchange_strong(letter, 0, std::memory_order_acquire))
            mail_->withdraw(letter);
    }
}

Result<int> Registrations::add(const void* address, size_t bytes, Use use) {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    const Driver& driver = kernels_->driver();
    const auto place = reinterpret_cast<CUdeviceptr>(address);
    auto facts = describe_pointer(driver, address);
    if (!facts) return facts.take_status();
    const bool vmm = facts->kind == MemoryKind::vmm;
    // Where there is no other process, only of virtual memory is it to be found out who reaches it.
    if (!mapper_ && !(vmm && group_->one_process()))
        return fail(weftInvalidUsage, "all ranks are of this process, or none shares memory with it");
    CUdeviceptr base = 0;
    size_t size = 0;
    std::vector<VmmPiece> pieces;
    if (vmm) {
        auto shared = shared_pieces(address, bytes);
        if (!shared) return shared.take_status();
        pieces = std::move(*shared);
        base = pieces.front().address;
        size = pieces.back().address + pieces.back().bytes - base;
    } else {
        WEFT_TRY(
            driver.check(driver.MemGetAddressRange(&base, &size, place), "find the allocation around {}", address));
    }
    if (bytes > base + size - place)
        return fail(weftInvalidArgument, "{} bytes at {} reach beyond their allocation", bytes, address);
    for (int entry = 0; entry < entries_max; ++entry) {
        Own& own = own_[size_t(entry)];
        if (!is_open(own.state) || own.base != base || own.bytes != size) continue;
        own.buffers += use == Use::buffer;
        return ++own.users, entry;
    }
    IpcExport exported{};
    if (!vmm) {
        auto handle = export_ipc(driver, base);
        if (!handle) return handle.take_status();
        exported = *handle;
    }
    for (int entry = 0; entry < entries_max; ++entry) {
        Own& own = own_[size_t(entry)];
        if (own.users > 0 || !unanswered(entry).empty()) continue;
        uint64_t letter = 0;
        if (vmm && mapper_) WEFT_TRY(post_pieces(pieces, letter));
        own = {base, size, own.state + 1, 1, use == Use::buffer, vmm};
        if (!mapper_) return entry;
        Table& mine = mapper_->table(rank_);
        mine.entries[entry].handle = exported.handle;
        mine.entries[entry].letter = letter;
        mine.entries[entry].state.store(own.state, std::memory_order_release);  // pairs with serve()
        letters_[size_t(entry)].store(letter, std::memory_order_release);       // pairs with withdraw_fetched()
        mine.changes.fetch_add(1, std::memory_order_release);
        return entry;
    }
    return fail(weftInvalidUsage, "{} allocations, which is the most, are registered or still mapped by others",
                entries_max);
}

void Registrations::begin_to_remove(int entry, Use use) {
    Own& own = own_[size_t(entry)];
    own.buffers -= use == Use::buffer && own.buffers > 0;
    if (own.users == 1 && is_open(own.state)) close(entry);
}

bool Registrations::removed(int entry) {
    Own& own = own_[size_t(entry)];
    if (own.users == 1 && !unanswered(entry).empty()) return false;
    --own.users;
    return true;
}

Status Registrations::remove(int entry, Use use) {
    begin_to_remove(entry, use);
    for (const int64_t until_us = now_us() + answer_patience_us; !removed(entry); usleep(1000)) {
        if (now_us() < until_us) continue;
        std::string ranks;
        for (const int rank : unanswered(entry)) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
        return fail(weftTimeout,
                    "the buffer is still mapped by rank {}, where a call may wait for this one: do not free it, and "
                    "deregister it again, on all ranks before the next call",
                    ranks);
    }
    return ok();
}

Registrations::Place Registrations::place_of(int entry, const void* address) const {
    const Own& own = own_[size_t(entry)];
    return {entry, own.state, reinterpret_cast<uintptr_t>(address) - own.base};
}

std::optional<std::byte*> Registrations::reach(int owner, const Place& place) const {
    if (!mapper_) return nullptr;
    const Table::Reply& reply = mapper_->table(rank_).replies[owner][place.entry];
    const uint64_t state = reply.state.load(std::memory_order_acquire);  // pairs with serve()
    if (state < place.state) return {};
    const uint64_t base = state == place.state ? reply.address.load(std::memory_order_relaxed) : 0;
    return base == 0 ? nullptr : reinterpret_cast<std::byte*>(base + place.offset);
}

bool Registrations::find(const void* address, size_t bytes, bool mapped, std::byte* (&at)[ranks_max]) const {
    const auto place = reinterpret_cast<uintptr_t>(address);
    int found = -1;
    for (int entry = 0; entry < entries_max && found < 0; ++entry) {
        const Own& own = own_[size_t(entry)];
        if (is_open(own.state) && own.buffers > 0 && place >= own.base && place - own.base <= own.bytes &&
            bytes <= own.bytes - (place - own.base))
            found = entry;
    }
    for (int peer = 0; peer < ranks_; ++peer) {
        if (group_->same_process(rank_, peer)) {
            if (!mapped && (found < 0 || !own_[size_t(found)].vmm)) return false;
            at[peer] = reinterpret_cast<std::byte*>(place);
            continue;
        }
        if (found < 0) return false;
        const Table::Reply& reply = mapper_->table(peer).replies[rank_][found];
        if (reply.state.load(std::memory_order_acquire) != own_[size_t(found)].state) return false;
        const uint64_t base = reply.address.load(std::memory_order_relaxed);
        if (base == 0) return false;
        at[peer] = reinterpret_cast<std::byte*>(base + (place - own_[size_t(found)].base));
    }
    return true;
}

void Registrations::look() {
    if (!mapper_) return;
    bool due = false;
    std::unique_lock lock(looking_, std::try_to_lock);
    if (!lock) return;  // somebody looks
    withdraw_fetched();
    due = mapper_->again.exchange(false);
    for (int owner = 0; owner < ranks_; ++owner) {
        const uint64_t changes = mapper_->table(owner).changes.load(std::memory_order_acquire);
        due |= changes != looked_[size_t(owner)];
        looked_[size_t(owner)] = changes;
    }
    if (!due) return;
    // One that has not begun yet sees what is new.
    if (mapper_->queued.exchange(true)) return;
    const bool posted = post([mapper = mapper_] {
        mapper->queued.exchange(false);  // before it looks
        try {
            mapper->serve();
        } catch (const std::exception&) {
            mapper->again.store(true);
        }
    });
    if (!posted) mapper_->queued.store(false), mapper_->again.store(true);
}

void Registrations::Mapper::serve() {
    const RelaxedCapture relaxed(kernels->driver());
    for (int owner = 0; owner < group->ranks(); ++owner) {
        if (group->same_process(rank, owner)) continue;
        for (int entry = 0; entry < entries_max; ++entry) {
            const Table::Entry& theirs = table(owner).entries[entry];
            const uint64_t state = theirs.state.load(std::memory_order_acquire);
            Mapped& ours = mapped[size_t(owner)][size_t(entry)];
            if (state == ours.state) continue;
            ours = {};
            if (is_open(state)) {
                if (auto there = map(owner, theirs))
                    ours = std::move(*there);
                else
                    WEFT_LOG_RANK(rank, info, mem, "cannot map what rank {} has registered, so messages are staged: {}",
                                  owner, there.status().sentence());
            }
            ours.state = state;
            Table::Reply& reply = table(rank).replies[owner][entry];
            reply.address.store(ours.base, std::memory_order_relaxed);
            reply.state.store(state, std::memory_order_release);  // pairs with find() and unanswered()
        }
    }
}

void Registrations::Mapper::leave() {
    const RelaxedCapture relaxed(kernels->driver());
    mapped.clear();
    mapped.resize(size_t(group->ranks()));
    table(rank).left.store(1, std::memory_order_release);  // pairs with unanswered()
}

Result<Registrations::Mapper::Mapped> Registrations::Mapper::map(int owner, const Table::Entry& theirs) {
    if (theirs.letter == 0) return map_ipc(theirs.handle);
    if (silent[size_t(owner)])
        return fail(weftTimeout, "its process has not answered before when file descriptors were fetched from it");
    auto there = map_pieces(table(owner).mail, theirs.letter);
    silent[size_t(owner)] = there.status().code() == weftTimeout;
    return there;
}

// One mapping an allocation and device, whichever communicators and ranks of the process want it.
Result<Registrations::Mapper::Mapped> Registrations::Mapper::map_ipc(const CUipcMemHandle& handle) const {
    std::array<char, sizeof handle.reserved> bytes;
    memcpy(bytes.data(), handle.reserved, bytes.size());
    auto mapping = shared_by_process<IpcMapping>(std::pair(kernels->context().device(), bytes),
                                                 [&]() -> Result<std::shared_ptr<IpcMapping>> {
                                                     auto opened = IpcMapping::open(kernels->context(), {handle, 0});
                                                     if (!opened) return opened.take_status();
                                                     return std::make_shared<IpcMapping>(std::move(*opened));
                                                 });
    if (!mapping) return mapping.take_status();
    return Mapped{0, *mapping, (*mapping)->base()};
}

// Likewise, of each registration.
Result<Registrations::Mapper::Mapped> Registrations::Mapper::map_pieces(const MailAddress& from,
                                                                        uint64_t letter) const {
    auto mapping = shared_by_process<VmmMemory>(
        std::tuple(kernels->context().device(), from.name[0], from.name[1], letter),
        [&]() -> Result<std::shared_ptr<VmmMemory>> {
            auto fetched = fetch_descriptors(from, letter, now_us() + fetch_patience_us);
            if (!fetched) return fetched.take_status();
            std::vector<uint64_t> sizes(fetched->descriptors.size());
            if (sizes.empty() || fetched->text.size() != sizes.size() * sizeof(uint64_t))
                return fail(weftRemoteError, "its process sent something else than the sizes of its pieces");
            memcpy(sizes.data(), fetched->text.data(), fetched->text.size());
            auto imported = VmmMemory::import(kernels->context(), fetched->descriptors, sizes);
            if (!imported) return imported.take_status();
            return std::make_shared<VmmMemory>(std::move(*imported));
        });
    if (!mapping) return mapping.take_status();
    return Mapped{0, *mapping, (*mapping)->address()};
}

}  // namespace weft::cuda
