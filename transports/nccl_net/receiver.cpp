// receiver.cpp: the receiving end of a connection over a plugin.
#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/options.hpp"
#include "transports/nccl_net/connection.hpp"

namespace weft::internal::nccl_net {

namespace {

// As in NCCL, a NIC that asks for flushes wins over the GPU's attributes. The user wins over both.
bool needs_flush(const MemoryRange& slots, const Device& device) {
    return slots.kind == RangeKind::device && (slots.needs_flush || (device.flush && options().gdr_flush != 0));
}

// Thread-bound (transports/connection.hpp).
class NetReceiver final : public Receiver {
  public:
    NetReceiver(const End& end, const Device& device, void* listening, Buffers buffers)
        : end_(end),
          buffers_(std::move(buffers)),
          flushes_(needs_flush(buffers_.slots().range(), device)),
          listening_(listening),
          requests_(parts * size_t(end.options.depth)) {}
    ~NetReceiver() override {
        if (comm_ && !failed_) await_goodbyes();
        memory_.end();
        if (comm_) end_.net.close_recv(comm_);
        if (listening_) end_.net.close_listen(listening_);
    }

    Result<Slot> receive(SlotInfo& info) override { return look_ahead(0, info); }
    Result<Slot> look_ahead(uint64_t ahead, SlotInfo& info) override;
    Status release() override;
    void add_wakeups(Wakeups& wakeups) override { wakeups.by_time = true; }

  private:
    Status accept_comm();
    Result<void*> handle_of_targets();
    Status post_targets();
    Status test_until(uint64_t needed);
    void await_goodbyes();
    Status take_part(uint64_t message, Part part, size_t bytes);
    Status check(const Header& header, uint64_t message) const;
    Result<bool> see(uint64_t message);
    Result<Slot> show(uint64_t message, SlotInfo& info);

    End end_;
    Buffers buffers_;
    const bool flushes_;
    CommMemory memory_;          // ends before buffers_
    void* listening_ = nullptr;  // until comm_ exists
    void* comm_ = nullptr;
    std::vector<void*> requests_;
    uint64_t posted_ = 0;    // parts with a target
    uint64_t tested_ = 0;    // of these, from the first, the parts that have arrived
    uint64_t released_ = 0;  // messages
    uint64_t visible_ = 0;   // messages, from the first, that kernels see
    void* flush_ = nullptr;  // the request for the message after these
    bool copies_ = false;    // the plugin refuses the caller's slots: data are received elsewhere and copied
    bool failed_ = false;
};

Status NetReceiver::accept_comm() {
    const abi::Answer answer = end_.net.accept_comm(listening_, &comm_);
    if (answer != abi::success) return comm_ = nullptr, end_.failed("accept a connection of", answer);
    if (!comm_) return ok();
    memory_.begin(comm_);
    end_.net.close_listen(listening_);
    listening_ = nullptr;
    return ok();
}

Result<void*> NetReceiver::handle_of_targets() {
    if (!copies_) {
        auto handle = memory_.handle_or_refusal(buffers_.slots());
        if (!handle) return handle.take_status();
        if (*handle) [[likely]]
            return **handle;
        if (buffers_.slots().range().kind == RangeKind::device) return memory_.handle_of(buffers_.slots());
        WEFT_TRY(buffers_.make_copies(end_.net));
        copies_ = true;
    }
    return memory_.handle_of(buffers_.copies());
}

Status NetReceiver::post_targets() {
    while (posted_ < (released_ + uint64_t(end_.options.depth)) * parts && posted_ < tested_ + messages_ahead * parts) {
        const uint64_t number = posted_ / parts;
        const bool is_header = posted_ % parts == header_part;
        auto memory = is_header ? memory_.handle_of(buffers_.headers()) : handle_of_targets();
        if (!memory) return memory.take_status();
        void* request = nullptr;
        const abi::Answer answer =
            is_header ? end_.net.irecv(comm_, &buffers_.header(number), sizeof(Header), header_part, *memory, &request)
                      : end_.net.irecv(comm_, copies_ ? buffers_.copy(number) : buffers_.slot(number),
                                       std::max<size_t>(end_.options.slot_bytes, 1), data_part, *memory, &request);
        if (answer != abi::success) return end_.failed("receive from", answer);
        if (!request) break;
        requests_[posted_++ % requests_.size()] = request;
    }
    return ok();
}

Status NetReceiver::check(const Header& header, uint64_t message) const {
    const ConnectionOptions& options = end_.options;
    const FailureFacts about{.rank = options.peer, .peer = options.self};
    const uint64_t expected = message + 1;
    if (header.magic == Header::goodbye_magic)
        return fail(error::transport_broken,
                    "rank {} awaits a message of rank {} over the network plugin {}, but that rank "
                    "has closed the connection",
                    options.self, options.peer, end_.net.name())
            .about(about);
    if (header.magic != Header::expected_magic || header.sequence != expected)
        return fail(error::internal_damaged,
                    "rank {} expected message {} from rank {} over the network plugin {} and got one numbered {}: the "
                    "stream is damaged",
                    options.self, expected, options.peer, end_.net.name(), header.sequence)
            .about(about);
    if (header.bytes > options.slot_bytes)
        return fail(error::internal_damaged,
                    "rank {} got a message from rank {} over the network plugin {} that claims {} bytes; slots hold {}",
                    options.self, options.peer, end_.net.name(), header.bytes, options.slot_bytes)
            .about(about);
    if (expected == 1 && !net::equal_digests(header.proof, end_.proof(options.peer)))
        return fail(
                   error::transport_broken,
                   "rank {} accepted a connection over the network plugin {} in place of rank {}'s: the process at the "
                   "other end does not know the job's secret",
                   options.self, end_.net.name(), options.peer)
            .about(about);
    return ok();
}

Status NetReceiver::take_part(uint64_t message, Part part, size_t bytes) {
    const Header& header = buffers_.header(message);
    if (part == header_part && bytes >= sizeof(Header)) return check(header, message);
    if (part == data_part && bytes >= header.bytes) return ok();
    return fail(error::internal_damaged,
                "rank {} got {} bytes of {} from rank {} over the network plugin {}: the plugin lost the rest",
                end_.options.self, bytes, part == header_part ? sizeof(Header) : header.bytes, end_.options.peer,
                end_.net.name())
        .about({.rank = end_.options.peer, .peer = end_.options.self});
}

// Tests so many parts only: if the peer has left, later requests fail, and nobody waits for them.
Status NetReceiver::test_until(uint64_t needed) {
    while (tested_ < std::min(posted_, needed)) {
        bool done = false;
        size_t bytes = 0;
        const abi::Answer answer = end_.net.test(requests_[tested_ % requests_.size()], &done, &bytes);
        if (answer != abi::success) return end_.failed("receive from", answer);
        if (!done) break;
        const uint64_t part = tested_++;
        WEFT_TRY(take_part(part / parts, Part(part % parts), bytes));
    }
    return ok();
}

void NetReceiver::await_goodbyes() {
    const Patience patience;
    while (tested_ < posted_ && patience.lasts()) {
        bool done = false;
        size_t bytes = 0;
        if (end_.net.test(requests_[tested_ % requests_.size()], &done, &bytes) != abi::success) return;
        tested_ += done;
    }
}

// Whether the bytes of the message, which has arrived, are in its slot, and kernels see them.
Result<bool> NetReceiver::see(uint64_t message) {
    for (; visible_ <= message; ++visible_) {
        const uint64_t bytes = buffers_.header(visible_).bytes;
        if (copies_) memcpy(buffers_.slot(visible_), buffers_.copy(visible_), bytes);
        if (!flushes_ || bytes == 0) continue;
        if (!flush_) {
            auto memory = memory_.handle_of(buffers_.slots());
            if (!memory) return memory.take_status();
            const abi::Answer answer = end_.net.iflush(comm_, buffers_.slot(visible_), bytes, *memory, &flush_);
            if (answer != abi::success) return end_.failed("flush what it received from", answer);
            if (!flush_) continue;  // the plugin needs none
        }
        bool done = false;
        size_t ignored = 0;
        const abi::Answer answer = end_.net.test(flush_, &done, &ignored);
        if (answer != abi::success) return end_.failed("flush what it received from", answer);
        if (!done) return false;
        flush_ = nullptr;
    }
    return true;
}

Result<Slot> NetReceiver::look_ahead(uint64_t ahead, SlotInfo& info) {
    auto slot = show(released_ + ahead, info);
    failed_ = failed_ || !slot;
    return slot;
}

Result<Slot> NetReceiver::show(uint64_t message, SlotInfo& info) {
    if (!comm_) {
        WEFT_TRY(accept_comm());
        if (!comm_) return Slot{};
    }
    const uint64_t needed = (message + 1) * parts;
    if (tested_ < needed) {
        Status posted = post_targets();
        if (posted_ < needed) WEFT_TRY(std::move(posted));
        WEFT_TRY(test_until(needed));
        if (tested_ < needed) return Slot{};
    }
    auto visible = see(message);
    if (!visible) return visible.take_status();
    if (!*visible) return Slot{};
    const Header& header = buffers_.header(message);
    info = {header.bytes, header.operation, header.fingerprint};
    return Slot{buffers_.slot(message), end_.options.slot_bytes};
}

Status NetReceiver::release() {
    ++released_;
    (void)post_targets().ok();  // the credit; a failure counts only if a message is awaited
    return ok();
}

}  // namespace

Result<std::unique_ptr<Receiver>> make_receiver(const Net& net, const ConnectionOptions& options, Blob& address) {
    const End end{net, options};
    auto buffers = Buffers::make(net, options);
    if (!buffers) return buffers.take_status();
    // Ranks of a host, and channels, spread over its devices.
    auto device = device_for(net, options, (options.self + options.channel) % int(net.devices().size()));
    if (!device) return device.take_status();
    Address own{.device = *device, .depth = options.depth, .slot_bytes = options.slot_bytes};
    void* listening = nullptr;
    const abi::Answer answer = net.listen(*device, own.handle, &listening);
    if (answer != abi::success || !listening) return end.failed("listen to", answer);
    address = own.blob();
    return std::unique_ptr<Receiver>(
        new NetReceiver(end, net.devices()[size_t(*device)], listening, std::move(*buffers)));
}

}  // namespace weft::internal::nccl_net
