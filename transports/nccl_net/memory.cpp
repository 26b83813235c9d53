#include "transports/nccl_net/memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "src/base/clock.hpp"
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

NetMemory::NetMemory(const MemoryRange& range, std::shared_ptr<Registrations> registrations)
    : RegisteredMemory(range), registrations_(std::move(registrations)) {}

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

namespace {

// A connection of a device to itself.
class Loopback {
  public:
    explicit Loopback(const Net& net) : net_(net) {}
    Loopback(const Loopback&) = delete;
    Loopback& operator=(const Loopback&) = delete;
    ~Loopback() {
        if (sending) net_.close_send(sending);
        if (receiving) net_.close_recv(receiving);
        if (listening_) net_.close_listen(listening_);
    }
    Status make(const Device& device);

    void* sending = nullptr;
    void* receiving = nullptr;

  private:
    static constexpr int64_t patience_us = 1'000'000;
    static constexpr unsigned apart_us = 100;

    const Net& net_;
    void* listening_ = nullptr;
};

Status Loopback::make(const Device& device) {
    alignas(std::max_align_t) unsigned char handle[abi::handle_bytes] = {};
    abi::Answer answer = net_.listen(device.index, handle, &listening_);
    for (const int64_t until_us = now_us() + patience_us; answer == abi::success && listening_; usleep(apart_us)) {
        if (!sending) answer = net_.connect(device.index, handle, &sending);
        if (answer == abi::success && !receiving) answer = net_.accept_comm(listening_, &receiving);
        if (answer == abi::success && sending && receiving) return ok();
        if (now_us() > until_us) break;
    }
    return fail(error::transport_broken,
                "{} of the network plugin {} does not connect to itself, which a test of device "
                "memory needs: {}",
                device.name, net_.name(), answer == abi::success ? "it is not ready after 1 s" : error_text(answer));
}

// As NCCL tests GPUDirect RDMA: a plugin tells only in a comm whether it can register memory.
Status try_device_memory(const Net& net, Registrations& registrations) {
    for (const Device& device : net.devices()) {
        if (!device.why_not.empty() || (device.pointers & (abi::cuda_pointer | abi::dma_buf_pointer)) == 0) continue;
        Loopback loopback(net);
        WEFT_TRY(loopback.make(device));
        Status refused;
        for (void* const comm : {loopback.sending, loopback.receiving}) {
            auto handle = registrations.in(comm);
            if (!handle && refused) refused = handle.take_status();
        }
        for (void* const comm : {loopback.sending, loopback.receiving}) registrations.end(comm);
        WEFT_TRY(std::move(refused));
    }
    return ok();
}

}  // namespace

Result<std::unique_ptr<RegisteredMemory>> register_range(const Net& net, const MemoryRange& range) {
    Fd dma_buf;
    if (range.kind == RangeKind::device && range.dma_buf >= 0) {
        // The plugin gets it at the first use in a comm; the caller closes its own before.
        dma_buf = Fd::duplicate(range.dma_buf);
        if (!dma_buf)
            return fail(error::transport_broken, "the descriptor of a dma-buf cannot be copied: {}", errno_text(errno));
    }
    auto registrations = std::make_shared<Registrations>(net, range, std::move(dma_buf));
    if (range.kind == RangeKind::device) WEFT_TRY(try_device_memory(net, *registrations));
    return std::unique_ptr<RegisteredMemory>(new NetMemory(range, std::move(registrations)));
}

}  // namespace weft::internal::nccl_net
