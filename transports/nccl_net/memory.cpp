#include "transports/nccl_net/memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/log.hpp"

namespace weft::internal::nccl_net {

Registrations::Registrations(const Net& net, const MemoryRange& range, Fd dma_buf)
    : net_(net), range_(range), dma_buf_(std::move(dma_buf)) {}

Result<void*> Registrations::in(void* comm) {
    std::lock_guard lock(mutex_);
    if (ended_) return fail(error::internal_state, "memory is used after its registration has ended");
    for (const Entry& entry : entries_)
        if (entry.comm == comm) return entry.handle;
    void* handle = nullptr;
    const int type = range_.kind == RangeKind::device ? abi::cuda_pointer : abi::host_pointer;
    abi::Answer answer =
        dma_buf_ ? net_.reg_dma_buf(comm, range_.data, range_.bytes, range_.dma_buf_offset, dma_buf_.number(), &handle)
                 : net_.reg(comm, range_.data, range_.bytes, type, &handle);
    if (answer != abi::success && dma_buf_) answer = net_.reg(comm, range_.data, range_.bytes, type, &handle);
    if (answer != abi::success)
        return fail(error::transport_broken, "the network plugin {} cannot register {} bytes of {} memory: {}",
                    net_.name(), range_.bytes, range_.kind == RangeKind::device ? "device" : "host",
                    error_text(answer));
    entries_.push_back({comm, handle});
    return handle;
}

void Registrations::end(void* comm) {
    std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_)
        if (entry.comm == comm) (void)net_.dereg(comm, entry.handle);
    std::erase_if(entries_, [&](const Entry& entry) { return entry.comm == comm; });
}

void Registrations::end_all() {
    std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) (void)net_.dereg(entry.comm, entry.handle);
    entries_.clear();
    ended_ = true;
}

bool Registrations::ended() {
    std::lock_guard lock(mutex_);
    return ended_;
}

void Registrations::log_refusal(const Status& why) {
    std::lock_guard lock(mutex_);
    if (!std::exchange(logged_, true))
        WEFT_LOG(info, net, "messages in {} bytes at {} are copied: {}", range_.bytes,
                 static_cast<const void*>(range_.data), why.sentence());
}

NetMemory::NetMemory(const MemoryRange& range, std::shared_ptr<Registrations> registrations,
                     std::vector<std::string> refusals)
    : RegisteredMemory(range), registrations_(std::move(registrations)), refusals_(std::move(refusals)) {}

Result<void*> CommMemory::handle_of(const NetMemory& memory) {
    for (const Entry& entry : entries_)
        if (entry.registrations == memory.registrations() && entry.handle) [[likely]]
            return *entry.handle;
    std::erase_if(entries_, [](const Entry& entry) { return entry.registrations->ended(); });
    auto handle = memory.registrations()->in(comm_);
    if (handle) entries_.push_back({memory.registrations(), *handle});
    return handle;
}

Result<std::optional<void*>> CommMemory::handle_or_refusal(const NetMemory& memory) {
    for (const Entry& entry : entries_)
        if (entry.registrations == memory.registrations()) [[likely]]
            return entry.handle;
    auto handle = handle_of(memory);
    if (handle) return std::optional<void*>(*handle);
    if (handle.status().id() != error::transport_broken) return handle.take_status();
    memory.registrations()->log_refusal(handle.status());
    entries_.push_back({memory.registrations(), {}});
    return std::optional<void*>();
}

void CommMemory::end() {
    for (const Entry& entry : entries_) entry.registrations->end(comm_);
    entries_.clear();
}

Result<OwnMemory> OwnMemory::allocate(const Net& net, size_t bytes) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE)), whole = (bytes + page - 1) / page * page;
    OwnMemory own;
    own.data_.reset(static_cast<std::byte*>(aligned_alloc(page, whole)));
    if (!own.data_)
        return fail(error::memory_exhausted, "there is no memory for a connection's slots of {} bytes", whole);
    memset(own.data_.get(), 0, whole);
    const MemoryRange range{.data = own.data_.get(), .bytes = whole, .kind = RangeKind::slots};
    own.registered_ = std::make_unique<NetMemory>(range, std::make_shared<Registrations>(net, range, Fd()));
    return own;
}

}  // namespace weft::internal::nccl_net
