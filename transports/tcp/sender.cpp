#include "transports/tcp/sender.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "src/net/socket.hpp"
#include "src/segment/shm_layout.hpp"

namespace weft::internal::tcp {

Result<SlotMemory> allocate_slot(size_t bytes) {
    const size_t whole = round_to_line(std::max<size_t>(bytes, 1));
    SlotMemory memory(static_cast<std::byte*>(aligned_alloc(line_bytes, whole)));
    if (!memory) return fail(error::memory_exhausted, "there is no memory for a connection's slot of {} bytes", bytes);
    memset(memory.get(), 0, whole);
    return memory;
}

TcpSender::TcpSender(const ConnectionOptions& options, std::shared_ptr<TcpConnection> connection)
    : options_(options), connection_(std::move(connection)), ring_(size_t(options.depth)) {}

// Schedules receive all that is sent, so no unread bytes are left on the sockets after an operation. Closing them then
// resets no connection, and the kernel still sends what it has accepted.
TcpSender::~TcpSender() {
    if (broken_ || stripes_.empty()) return;
    if (first_ != next_) (void)push_all().ok();
    connection_->end_sending();
}

Status TcpSender::connect() {
    WEFT_TRY(connection_->connect());
    if (connection_->connected()) stripes_.resize(size_t(connection_->stripes()));
    return ok();
}

// Sends as much of this stripe's shares as the kernel accepts.
Status TcpSender::push(int index) {
    Stripe& stripe = stripes_[size_t(index)];
    for (; stripe.message < next_; ++stripe.message, stripe.done = 0) {
        Outgoing& outgoing = at(stripe.message);
        if (!has_part(outgoing.header.bytes, index, connection_->stripes())) continue;
        const Share share = share_of(outgoing.header.bytes, index, connection_->stripes());
        const uint64_t whole = sizeof(MessageHeader) + share.end - share.begin;
        while (stripe.done < whole) {
            iovec parts[2];
            size_t count = 0;
            uint64_t skip = 0;
            if (stripe.done < sizeof(MessageHeader))
                parts[count++] = {reinterpret_cast<std::byte*>(&outgoing.header) + stripe.done,
                                  sizeof(MessageHeader) - stripe.done};
            else
                skip = stripe.done - sizeof(MessageHeader);
            if (share.begin + skip < share.end)
                parts[count++] = {const_cast<std::byte*>(outgoing.data) + share.begin + skip,
                                  share.end - share.begin - skip};
            msghdr message{};
            message.msg_iov = parts;
            message.msg_iovlen = count;
            const ssize_t sent = sendmsg(connection_->socket(index), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0) {
                const int error = errno;
                if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS) return ok();
                broken_ = true;
                const Status why = net::broken_connection(error);
                return fail(why, "rank {} cannot send to rank {} at {}: {}", options_.self, options_.peer,
                            connection_->peer(index).text(), why.sentence());
            }
            stripe.done += uint64_t(sent);
        }
    }
    return ok();
}

Status TcpSender::push_all() {
    uint64_t through = next_;
    for (size_t index = 0; index < stripes_.size(); ++index) {
        WEFT_TRY(push(int(index)));
        through = std::min(through, stripes_[index].message);
    }
    first_ = through;
    return ok();
}

Result<bool> TcpSender::progress() {
    if (stripes_.empty()) [[unlikely]] {
        Status step = connect();
        // A failure counts only if there is something to send: the peer may have left after its last receive.
        if (!step && first_ != next_) return step;
        if (stripes_.empty()) return first_ == next_;
    }
    if (first_ != next_) WEFT_TRY(push_all());
    return first_ == next_;
}

Status TcpSender::back(Outgoing& outgoing) {
    if (outgoing.memory) return ok();
    auto memory = allocate_slot(options_.slot_bytes);
    if (!memory) return memory.take_status();
    outgoing.memory = std::move(*memory);
    return ok();
}

Status TcpSender::check(const SlotInfo& info) const {
    if (info.bytes <= options_.slot_bytes) return ok();
    return fail(error::internal_state, "rank {} would send {} bytes to rank {} in a slot of {}", options_.self,
                info.bytes, options_.peer, options_.slot_bytes);
}

void TcpSender::enqueue(const std::byte* data, const SlotInfo& info) {
    Outgoing& outgoing = at(next_);
    outgoing.header = {
        .fingerprint = info.fingerprint, .sequence = next_ + 1, .bytes = info.bytes, .operation = info.operation};
    outgoing.data = data;
    ++next_;
}

Result<Slot> TcpSender::acquire() {
    if (stripes_.empty() || next_ - first_ == ring_.size()) {
        auto through = progress();
        if (!through) return through.take_status();
        if (next_ - first_ == ring_.size()) return Slot{};
    }
    Outgoing& outgoing = at(next_);
    WEFT_TRY(back(outgoing));
    return Slot{outgoing.memory.get(), options_.slot_bytes};
}

Status TcpSender::publish(const SlotInfo& info) {
    WEFT_TRY(check(info));
    enqueue(at(next_).memory.get(), info);
    auto through = progress();
    return through ? ok() : through.take_status();
}

// Directly from the caller's memory, as much as the kernel accepts.
Result<bool> TcpSender::post(const std::byte* data, const RegisteredMemory*, const SlotInfo& info) {
    WEFT_TRY(check(info));
    auto through = progress();
    if (!through) return through;
    if (next_ - first_ == ring_.size()) return false;
    enqueue(data, info);
    if (!stripes_.empty() && *through) WEFT_TRY(push_all());
    return true;
}

Result<bool> TcpSender::send(const std::byte* data, const SlotInfo& info) {
    const uint64_t message = next_;
    auto posted = post(data, nullptr, info);
    if (!posted || !*posted) return posted;
    if (first_ == next_) [[likely]]
        return true;
    Outgoing& outgoing = at(message);
    if (Status backed = back(outgoing); !backed) {
        broken_ = true;  // the rest of the message has no memory
        return backed;
    }
    if (stripes_.empty() && info.bytes > 0)
        memcpy(outgoing.memory.get(), data, info.bytes);  // the number of stripes is not known yet
    for (size_t index = 0; index < stripes_.size(); ++index) {
        const Stripe& stripe = stripes_[index];
        const Share share = share_of(info.bytes, int(index), int(stripes_.size()));
        if (stripe.message > message) continue;
        const uint64_t sent =
            stripe.message == message && stripe.done > sizeof(MessageHeader) ? stripe.done - sizeof(MessageHeader) : 0;
        const uint64_t begin = share.begin + sent;
        if (begin < share.end) memcpy(outgoing.memory.get() + begin, data + begin, share.end - begin);
    }
    outgoing.data = outgoing.memory.get();
    return true;
}

void TcpSender::add_wakeups(Wakeups& wakeups) {
    if (stripes_.empty()) return connection_->add_descriptors(wakeups.descriptors);
    for (size_t index = 0; index < stripes_.size(); ++index)
        if (stripes_[index].message < next_)
            wakeups.descriptors.push_back({connection_->socket(int(index)), POLLOUT, 0});
}

}  // namespace weft::internal::tcp
