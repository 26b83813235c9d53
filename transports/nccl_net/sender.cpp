// sender.cpp: the sending end of a connection over a plugin.
#include <algorithm>
#include <cstring>

#include "transports/nccl_net/connection.hpp"

namespace weft::internal::nccl_net {

namespace {

// Thread-bound (transports/connection.hpp).
class NetSender final : public Sender {
  public:
    NetSender(const End& end, const Address& address, Buffers buffers)
        : end_(end),
          address_(address),
          buffers_(std::move(buffers)),
          messages_(size_t(end.options.depth)),
          requests_(parts * size_t(end.options.depth)) {}
    ~NetSender() override {
        if (!comm_) return;
        if (!failed_) say_goodbye();
        memory_.end();
        end_.net.close_send(comm_);
    }

    Result<Slot> acquire() override;
    Status publish(const SlotInfo& info) override;
    Result<bool> progress() override;
    Result<bool> post(const std::byte* data, const RegisteredMemory* memory, const SlotInfo& info) override;
    uint64_t sent() override { return tested_ / parts; }
    void add_wakeups(Wakeups& wakeups) override { wakeups.by_time = true; }

  private:
    struct Message {
        const std::byte* data = nullptr;
        const NetMemory* memory = nullptr;
        uint64_t bytes = 0;
    };

    bool full() const { return next_ - tested_ / parts == messages_.size(); }
    Message& at(uint64_t message) { return messages_[message % messages_.size()]; }
    Status check(const SlotInfo& info) const;
    void enqueue(const Message& message, const SlotInfo& info, uint32_t magic = Header::expected_magic);
    void say_goodbye();
    Status connect();
    Result<void*> handle_of_data(uint64_t number);
    Result<bool> send_next_part();
    Status test_all();

    End end_;
    Address address_;
    Buffers buffers_;
    CommMemory memory_;  // ends before buffers_
    void* comm_ = nullptr;
    std::vector<Message> messages_;
    std::vector<void*> requests_;
    uint64_t next_ = 0;    // message to be published
    uint64_t posted_ = 0;  // parts that the plugin has accepted
    uint64_t tested_ = 0;  // of these, from the first, the parts that are complete
    bool failed_ = false;
};

Status NetSender::connect() {
    const abi::Answer answer = end_.net.connect(address_.device, address_.handle, &comm_);
    if (answer != abi::success) return comm_ = nullptr, end_.failed("connect to", answer);
    if (comm_) memory_.begin(comm_);
    return ok();
}

// If the plugin refuses the message's memory, the data go on from a copy. It takes the place of the message's slot, which
// nobody else uses until the message is complete, or memory beside the caller's slots. Device memory was tried before.
Result<void*> NetSender::handle_of_data(uint64_t number) {
    Message& message = at(number);
    auto handle = memory_.handle_or_refusal(*message.memory);
    if (!handle) return handle.take_status();
    if (*handle) [[likely]]
        return **handle;
    if (message.memory->range().kind == RangeKind::device) return memory_.handle_of(*message.memory);
    WEFT_TRY(buffers_.make_copies(end_.net));
    memcpy(buffers_.copy(number), message.data, message.bytes);
    message = {buffers_.copy(number), &buffers_.copies(), message.bytes};
    return memory_.handle_of(*message.memory);
}

// False: the receiver has posted no target for it yet.
Result<bool> NetSender::send_next_part() {
    const uint64_t number = posted_ / parts;
    const Message& message = at(number);
    const bool is_header = posted_ % parts == header_part;
    // Plugins need not support empty messages: the data of one are a byte of the header.
    const bool of_header = is_header || message.bytes == 0;
    auto memory = of_header ? memory_.handle_of(buffers_.headers()) : handle_of_data(number);
    if (!memory) return memory.take_status();
    const void* data = of_header ? static_cast<const void*>(&buffers_.header(number)) : message.data;
    const size_t bytes = is_header ? sizeof(Header) : std::max<uint64_t>(message.bytes, 1);
    void* request = nullptr;
    const abi::Answer answer =
        end_.net.isend(comm_, const_cast<void*>(data), bytes, int(posted_ % parts), *memory, &request);
    if (answer != abi::success) return end_.failed("send to", answer);
    if (!request) return false;
    requests_[posted_++ % requests_.size()] = request;
    return true;
}

Status NetSender::test_all() {
    while (tested_ < posted_) {
        bool done = false;
        size_t bytes = 0;
        const abi::Answer answer = end_.net.test(requests_[tested_ % requests_.size()], &done, &bytes);
        if (answer != abi::success) return end_.failed("send to", answer);
        if (!done) break;
        ++tested_;
    }
    return ok();
}

Result<bool> NetSender::progress() {
    const auto step = [&]() -> Status {
        if (!comm_) WEFT_TRY(connect());
        if (!comm_) return ok();
        WEFT_TRY(test_all());
        while (posted_ < next_ * parts && posted_ < tested_ + messages_ahead * parts) {
            auto accepted = send_next_part();
            if (!accepted) return accepted.take_status();
            if (!*accepted) break;
        }
        return test_all();
    };
    if (Status status = step(); !status) {
        if (next_ == 0) return true;  // nothing to send: the peer may have left
        failed_ = true;
        return status;
    }
    return tested_ == next_ * parts;
}

Status NetSender::check(const SlotInfo& info) const {
    if (info.bytes <= end_.options.slot_bytes) return ok();
    return fail(error::internal_state, "rank {} would send {} bytes to rank {} in a slot of {}", end_.options.self,
                info.bytes, end_.options.peer, end_.options.slot_bytes);
}

void NetSender::enqueue(const Message& message, const SlotInfo& info, uint32_t magic) {
    buffers_.header(next_) = {.magic = magic,
                              .fingerprint = info.fingerprint,
                              .sequence = next_ + 1,
                              .bytes = info.bytes,
                              .operation = info.operation,
                              .proof = next_ == 0 ? end_.proof(end_.options.self) : net::Digest{}};
    at(next_) = message;
    ++next_;
}

// After the last message, as many as the receiver has targets.
void NetSender::say_goodbye() {
    const uint64_t last = next_ + std::min<uint64_t>(messages_.size(), messages_ahead);
    const Patience patience;
    for (;;) {
        while (next_ < last && !full()) enqueue({}, {}, Header::goodbye_magic);
        auto through = progress();
        if (!through || (*through && next_ == last) || !patience.lasts()) return;
    }
}

Result<Slot> NetSender::acquire() {
    if (!comm_ || full()) {
        auto through = progress();
        if (!through) return through.take_status();
        if (full()) return Slot{};
    }
    return Slot{buffers_.slot(next_), end_.options.slot_bytes};
}

Status NetSender::publish(const SlotInfo& info) {
    WEFT_TRY(check(info));
    enqueue({buffers_.slot(next_), &buffers_.slots(), info.bytes}, info);
    auto through = progress();
    return through ? ok() : through.take_status();
}

Result<bool> NetSender::post(const std::byte* data, const RegisteredMemory* memory, const SlotInfo& info) {
    const auto* const own = dynamic_cast<const NetMemory*>(memory);
    if (!own) return send(data, info);
    WEFT_TRY(check(info));
    auto through = progress();
    if (!through || full()) return through ? Result<bool>(false) : through.take_status();
    enqueue({data, own, info.bytes}, info);
    through = progress();
    return through ? Result<bool>(true) : through.take_status();
}

}  // namespace

Result<std::unique_ptr<Sender>> make_sender(const Net& net, const ConnectionOptions& options, const Address& address) {
    auto buffers = Buffers::make(net, options);
    if (!buffers) return buffers.take_status();
    // The receiver's, because devices of one index are often on one rail.
    auto device = device_for(net, options, address.device);
    if (!device) return device.take_status();
    Address peer = address;
    peer.device = *device;
    std::unique_ptr<Sender> sender(new NetSender({net, options}, peer, std::move(*buffers)));
    auto begun = sender->progress();
    if (!begun) return begun.take_status();
    return sender;
}

}  // namespace weft::internal::nccl_net
