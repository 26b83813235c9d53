// sender.cpp: the sending end of a connection over UCX.
#include <algorithm>
#include <utility>

#include "transports/ucx/ends.hpp"

namespace weft::internal::ucx {

namespace {

// Messages that UCX does not copy before it sends them, by default: it sends them from their memory, or by rendezvous. They
// are complete when the kernel, or the peer, has them and all messages before them.
constexpr uint64_t uncopied_bytes = 8'192;

// Thread-bound (transports/connection.hpp).
class UcxSender final : public Sender, private Inbox {
  public:
    explicit UcxSender(End end)
        : end_(std::move(end)), depth_(uint64_t(end_.options.depth)), credits_(depth_), data_(depth_) {
        end_.worker->add(end_.token, *this);
    }
    UcxSender(const UcxSender&) = delete;
    UcxSender& operator=(const UcxSender&) = delete;
    ~UcxSender() override { end_.worker->remove(end_.token, std::move(end_.buffers)); }

    Result<Slot> acquire() override;
    Status publish(const SlotInfo& info) override;
    Result<bool> progress() override;
    Result<bool> post(const std::byte* data, const RegisteredMemory*, const SlotInfo& info) override;
    uint64_t sent() override { return done_; }
    void add_wakeups(Wakeups& wakeups) override {
        end_.add_wakeups(wakeups);
        wakeups.ready |= may_go_on();
    }

  private:
    ucs_status_t on_message(const MessageHeader&, void*, size_t, bool) override { return UCS_OK; }
    void on_credits(uint64_t credits) override {
        credits_ += credits;
        released_ += credits;
        end_.peer->unreleased -= std::min(end_.peer->unreleased, credits);
    }

    bool full() const { return next_ - done_ == depth_; }
    Status check(const SlotInfo& info) const;
    void enqueue(const std::byte* data, const SlotInfo& info);
    void post_message();
    Status post_messages();
    Status begin();
    Result<bool> step();
    Result<bool> has_room();
    Status complete_messages();
    bool few_on_the_way() const;
    bool may_go_on() const;
    bool flushed();

    End end_;
    uint64_t depth_;
    uint64_t credits_;
    std::vector<const std::byte*> data_;  // of each message on its way
    uint64_t next_ = 0;                   // message to be published
    uint64_t posted_ = 0;                 // messages that UCX has
    uint64_t done_ = 0;                   // of these, from the first, the messages that are complete
    uint64_t released_ = 0;               // messages that the receiver has released
    uint64_t flushed_ = 0;                // messages that need no further call
    uint64_t flushing_ = 0;               // messages before the flush in progress
    bool flowing_ = false;                // the last progress() was not through
};

// A slot's message is posted without a copy, so the receiver may read it by rendezvous.
void UcxSender::post_message() {
    const size_t place = size_t(posted_ % depth_);
    Buffers& buffers = *end_.buffers;
    MessageHeader& header = buffers.headers[place];
    end_.worker->add_credits(*end_.peer, header);
    const bool own = data_[place] == buffers.slot(posted_);
    end_.worker->post(*end_.peer, Worker::message_id, &header, sizeof header, data_[place], header.bytes,
                      own ? buffers.handle() : nullptr, buffers.transfers[place]);
    --credits_;
    ++posted_;
    ++end_.peer->unreleased;
}

Status UcxSender::complete_messages() {
    for (; done_ < posted_; ++done_) {
        const Transfer& transfer = end_.buffers->transfers[size_t(done_ % depth_)];
        if (transfer.active) break;
        if (transfer.status != UCS_OK) return end_.failed("send to", transfer.status);
        if (end_.buffers->headers[size_t(done_ % depth_)].bytes >= uncopied_bytes) flushed_ = done_ + 1;
    }
    return ok();
}

// Whether the messages that the receiver may not have fit the send buffer of any socket.
bool UcxSender::few_on_the_way() const {
    constexpr uint64_t most = 16'384;  // bytes; Linux's net.ipv4.tcp_wmem
    uint64_t bytes = 0;
    for (uint64_t message = std::max(released_, flushed_); message < next_; ++message)
        bytes += end_.buffers->headers[size_t(message % depth_)].bytes;
    return bytes <= most;
}

// Another end's call may have taken what this one waits for.
bool UcxSender::may_go_on() const {
    if (!end_.peer) return false;
    const Transfer& first = end_.buffers->transfers[size_t(done_ % depth_)];
    return end_.peer->status != UCS_OK || (posted_ < next_ && credits_ > 0) || (done_ < posted_ && !first.active) ||
           (flushed_ < flushing_ && !end_.buffers->flush.active) || (flowing_ && done_ == next_ && few_on_the_way());
}

// UCX completes a short message when it has a copy of it. If a socket is full, it needs further calls to bring that on its
// way. A flush over TCP may need calls of a peer that has all it waits for, so it is left out if the kernel has the bytes
// for sure.
// A peer that has left has taken all that it needs, or its death is reported elsewhere.
bool UcxSender::flushed() {
    Transfer& flush = end_.buffers->flush;
    while (flushed_ < done_) {
        if (flushing_ <= flushed_ && !flush.active) {
            flushing_ = done_;
            end_.worker->flush(*end_.peer, flush);
        }
        if (flush.active) return false;
        flushed_ = std::max(flushed_, flushing_);
    }
    return true;
}

Status UcxSender::post_messages() {
    if (end_.peer->status != UCS_OK) return end_.failed("send to", end_.peer->status);
    while (posted_ < next_ && credits_ > 0) post_message();
    return complete_messages();
}

// With a credit it does not look at the network, which costs a system call over TCP.
Status UcxSender::begin() {
    if (end_.peer && credits_ > 0) [[likely]]
        return post_messages();
    auto through = progress();
    return through ? ok() : through.take_status();
}

Result<bool> UcxSender::has_room() {
    if (!end_.peer || full()) {
        auto through = progress();
        if (!through) return through;
    }
    return !full();
}

Result<bool> UcxSender::progress() {
    auto through = step();
    flowing_ = through && !*through;
    return through;
}

Result<bool> UcxSender::step() {
    auto met = end_.meet();
    if (!met) return next_ == 0 ? Result<bool>(true) : met.take_status();  // nothing to send: the peer may have left
    if (!*met) return next_ == 0;
    // A look at the network costs a system call over TCP.
    if (done_ == next_ && few_on_the_way() && end_.peer->status == UCS_OK) return true;
    end_.worker->progress();
    WEFT_TRY(complete_messages());
    if (done_ == next_ && few_on_the_way()) return true;
    WEFT_TRY(post_messages());
    if (done_ < next_) return false;
    return few_on_the_way() || flushed();
}

Status UcxSender::check(const SlotInfo& info) const {
    if (info.bytes <= end_.options.slot_bytes) return ok();
    return fail(error::internal_state, "rank {} would send {} bytes to rank {} in a slot of {}", end_.options.self,
                info.bytes, end_.options.peer, end_.options.slot_bytes);
}

void UcxSender::enqueue(const std::byte* data, const SlotInfo& info) {
    const size_t place = size_t(next_ % depth_);
    end_.buffers->headers[place] = {.connection = end_.token,
                                    .sequence = next_ + 1,
                                    .bytes = info.bytes,
                                    .operation = info.operation,
                                    .fingerprint = info.fingerprint};
    data_[place] = data;
    ++next_;
}

Result<Slot> UcxSender::acquire() {
    auto room = has_room();
    if (!room) return room.take_status();
    if (!*room) return Slot{};
    return Slot{end_.buffers->slot(next_), end_.options.slot_bytes};
}

Status UcxSender::publish(const SlotInfo& info) {
    WEFT_TRY(check(info));
    enqueue(end_.buffers->slot(next_), info);
    return begin();
}

Result<bool> UcxSender::post(const std::byte* data, const RegisteredMemory*, const SlotInfo& info) {
    WEFT_TRY(check(info));
    auto room = has_room();
    if (!room || !*room) return room;
    enqueue(data, info);
    WEFT_TRY(begin());
    return true;
}

}  // namespace

Result<std::unique_ptr<Sender>> make_sender(End end) {
    std::unique_ptr<Sender> sender(new UcxSender(std::move(end)));
    auto begun = sender->progress();
    if (!begun) return begun.take_status();
    return sender;
}

}  // namespace weft::internal::ucx
