#include "transports/nccl_net/memory.hpp"

#include <cerrno>
#include <utility>

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

NetMemory::NetMemory(const MemoryRange& range, std::shared_ptr<Registrations> registrations)
    : RegisteredMemory(range), registrations_(std::move(registrations)) {}

Result<void*> CommMemory::handle_of(const NetMemory& memory) {
    for (const Entry& entry : entries_)
        if (entry.registrations == memory.registrations()) [[likely]]
            return entry.handle;
    std::erase_if(entries_, [](const Entry& entry) { return entry.registrations->ended(); });
    auto handle = memory.registrations()->in(comm_);
    if (handle) entries_.push_back({memory.registrations(), *handle});
    return handle;
}

void CommMemory::end() {
    for (const Entry& entry : entries_) entry.registrations->end(comm_);
    entries_.clear();
}

Result<std::unique_ptr<RegisteredMemory>> register_range(const Net& net, const MemoryRange& range) {
    Fd dma_buf;
    if (range.kind == RangeKind::device && range.dma_buf >= 0) {
        // The plugin gets it at the first use in a comm; the caller closes its own before.
        dma_buf = Fd::duplicate(range.dma_buf);
        if (!dma_buf)
            return fail(error::transport_broken, "the descriptor of a dma-buf cannot be copied: {}", errno_text(errno));
    }
    return std::unique_ptr<RegisteredMemory>(
        new NetMemory(range, std::make_shared<Registrations>(net, range, std::move(dma_buf))));
}

}  // namespace weft::internal::nccl_net
