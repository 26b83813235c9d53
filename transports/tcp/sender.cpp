#include "transports/tcp/sender.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/net/secret.hpp"

namespace weft::tcp {

static constexpr int64_t call_again_us = 20'000;

Result<SlotMemory> allocate_slot(size_t bytes) {
    const size_t whole = (std::max<size_t>(bytes, 1) + line_bytes - 1) / line_bytes * line_bytes;
    SlotMemory memory(static_cast<std::byte*>(aligned_alloc(line_bytes, whole)));
    if (!memory) return fail(weftSystemError, "no memory for a connection's slot of {} bytes", bytes);
    memset(memory.get(), 0, whole);
    return memory;
}

TcpSender::TcpSender(const ConnectionOptions& options, const Place& place, const std::vector<net::Address>& sources,
                     int stripes)
    : options_(options), stripes_(size_t(stripes)), ring_(size_t(options.depth)) {
    for (int index = 0; index < stripes; ++index) {
        std::vector<net::Address> targets = place.addresses;
        std::optional<net::Address> source;
        if (stripes > 1) {
            std::erase_if(targets, [&](const net::Address& address) { return address.interface() != index; });
            for (const net::Address& own : sources)
                for (const net::Address& target : targets)
                    if (!source && own.interface() == index && own.family() == target.family()) source = own;
        }
        Stripe& stripe = stripes_[size_t(index)];
        stripe.purpose = {net::data, stripe_detail(index, stripes), place.token};
        stripe.targets = std::move(targets);
        stripe.source = source;
        stripe.call.emplace(*options.identity, stripe.purpose, stripe.targets, stripe.source);
    }
}

// Orderly: nothing ever comes back over these sockets, so closing them resets nothing, and the kernel goes on sending
// what it has taken.
TcpSender::~TcpSender() {
    if (connected_ && !broken_ && first_ != next_) (void)push_all().ok();
}

Status TcpSender::connect() {
    bool missing = false;
    for (Stripe& stripe : stripes_) {
        if (!stripe.call) continue;
        if (stripe.again_us != 0) {
            missing = true;
            if (now_us() < stripe.again_us) continue;
            stripe.again_us = 0;
            stripe.call.emplace(*options_.identity, stripe.purpose, stripe.targets, stripe.source);
        }
        auto socket = stripe.call->advance();
        // We step a call only while we are inside Weft, and a door waits for nobody for long. If the other end is gone
        // for good, the next call is refused.
        if (!socket && stripe.call->turned_away()) {
            stripe.again_us = now_us() + call_again_us;
            missing = true;
            continue;
        }
        if (!socket)
            return fail(socket.status().code(), "rank {} has no connection to rank {}: {}", options_.self,
                        options_.peer, socket.status().sentence());
        if (!*socket) {
            missing = true;
            continue;
        }
        stripe.socket = std::move(**socket);
        stripe.peer = stripe.call->peer();
        stripe.call.reset();
        WEFT_LOG_RANK(options_.self, info, net, "channel {} connects to rank {} over tcp at {}{}", options_.channel,
                      options_.peer, stripe.peer.text(),
                      stripes_.size() > 1 ? fmt::format(", one of {} stripes", stripes_.size()) : "");
    }
    connected_ = !missing;
    return ok();
}

// Gives the kernel what it takes of this stripe's shares.
Status TcpSender::push(Stripe& stripe, int index) {
    for (; stripe.message < next_; ++stripe.message, stripe.done = 0) {
        Outgoing& outgoing = at(stripe.message);
        if (!has_part(outgoing.header.bytes, index, int(stripes_.size()))) continue;
        const Share share = share_of(outgoing.header.bytes, index, int(stripes_.size()));
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
            const ssize_t sent = sendmsg(stripe.socket.number(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0) {
                const int error = errno;
                if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS) return ok();
                broken_ = true;
                return fail(weftRemoteError, "rank {} cannot send to rank {} at {}: {}", options_.self, options_.peer,
                            stripe.peer.text(), errno_text(error));
            }
            stripe.done += uint64_t(sent);
        }
    }
    return ok();
}

Status TcpSender::push_all() {
    uint64_t through = next_;
    for (size_t index = 0; index < stripes_.size(); ++index) {
        WEFT_TRY(push(stripes_[index], int(index)));
        through = std::min(through, stripes_[index].message);
    }
    first_ = through;
    return ok();
}

Result<bool> TcpSender::progress() {
    if (!connected_) [[unlikely]] {
        WEFT_TRY(connect());
        if (!connected_) return first_ == next_;
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
    return fail(weftInternalError, "rank {} would send {} bytes to rank {} in a slot of {}", options_.self, info.bytes,
                options_.peer, options_.slot_bytes);
}

void TcpSender::enqueue(const std::byte* data, const SlotInfo& info) {
    Outgoing& outgoing = at(next_);
    outgoing.header = {
        .fingerprint = info.fingerprint, .sequence = next_ + 1, .bytes = info.bytes, .operation = info.operation};
    outgoing.data = data;
    ++next_;
}

Result<Slot> TcpSender::acquire() {
    if (!connected_ || next_ - first_ == ring_.size()) {
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

Result<bool> TcpSender::send(const std::byte* data, const SlotInfo& info) {
    WEFT_TRY(check(info));
    auto through = progress();
    if (!through) return through;
    if (next_ - first_ == ring_.size()) return false;
    const uint64_t message = next_;
    enqueue(data, info);
    // Straight from the caller's memory as far as the kernel takes it.
    if (connected_ && *through) WEFT_TRY(push_all());
    if (first_ == next_) [[likely]]
        return true;
    Outgoing& outgoing = at(message);
    WEFT_TRY(back(outgoing));
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

void TcpSender::add_descriptors(std::vector<pollfd>& list) const {
    for (const Stripe& stripe : stripes_) {
        if (stripe.call && stripe.again_us == 0)
            stripe.call->add_descriptors(list);
        else if (stripe.call)
            continue;
        else if (stripe.message < next_)
            list.push_back({stripe.socket.number(), POLLOUT, 0});
    }
}

}  // namespace weft::tcp
