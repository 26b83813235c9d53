#include "transports/tcp/receiver.hpp"

#include <cstring>

#include "src/net/socket.hpp"

namespace weft::internal::tcp {

TcpReceiver::TcpReceiver(const ConnectionOptions& options, std::shared_ptr<TcpConnection> connection)
    : options_(options), connection_(std::move(connection)) {}

// True: the sockets are connected.
Result<bool> TcpReceiver::connect() {
    WEFT_TRY(connection_->connect());
    if (!connection_->connected()) return false;
    stripes_ = std::vector<Stripe>(size_t(connection_->stripes()));
    for (Stripe& stripe : stripes_) stripe.stash = std::make_unique<std::byte[]>(Stripe::stash_bytes);
    return true;
}

Status TcpReceiver::broken(int index, const Status& how) const {
    const Stripe& stripe = stripes_[size_t(index)];
    const bool inside = stripe.headed || stripe.begin < stripe.end;
    return fail(how, "rank {} cannot receive from rank {} at {}: {}{}", options_.self, options_.peer,
                connection_->peer(index).text(), how.sentence(), inside ? ", in the middle of a message" : "");
}

Status TcpReceiver::damaged(int index, const MessageHeader& header) const {
    if (header.magic == MessageHeader::expected_magic && header.sequence == sequence_ &&
        header.bytes > options_.slot_bytes)
        return fail(error::internal_damaged,
                    "rank {} got a message from rank {} at {} that claims {} bytes; slots hold {}", options_.self,
                    options_.peer, connection_->peer(index).text(), header.bytes, options_.slot_bytes)
            .about({.rank = options_.peer, .peer = options_.self});
    return fail(error::internal_damaged,
                "rank {} expected message {} from rank {} at {} and got one numbered {}, of {} bytes: the stream is "
                "damaged",
                options_.self, sequence_, options_.peer, connection_->peer(index).text(), header.sequence, header.bytes)
        .about({.rank = options_.peer, .peer = options_.self});
}

// True: the stripe's header of the current message has been read and is right. The headers of all stripes must equal the
// first one's.
Result<bool> TcpReceiver::read_header(int index) {
    Stripe& stripe = stripes_[size_t(index)];
    if (stripe.headed) return true;
    if (stripe.end - stripe.begin < sizeof(MessageHeader)) {
        if (stripe.begin == stripe.end) stripe.begin = stripe.end = 0;
        if (Stripe::stash_bytes - stripe.begin < sizeof(MessageHeader)) {
            memmove(stripe.stash.get(), stripe.stash.get() + stripe.begin, stripe.end - stripe.begin);
            stripe.end -= stripe.begin;
            stripe.begin = 0;
        }
        // A message is usually as large as the last one. Of a large one read only the header here, so that the rest is
        // read into its target.
        const size_t most = header_.bytes + sizeof(MessageHeader) <= Stripe::stash_bytes
                                ? Stripe::stash_bytes - stripe.end
                                : sizeof(MessageHeader) - (stripe.end - stripe.begin);
        auto got = net::read_some(connection_->socket(index), stripe.stash.get() + stripe.end, most);
        if (!got) return broken(index, got.status());
        stripe.end += *got;
        if (stripe.end - stripe.begin < sizeof(MessageHeader)) return false;
    }
    MessageHeader header;
    memcpy(&header, stripe.stash.get() + stripe.begin, sizeof header);
    if (header.magic != MessageHeader::expected_magic || header.sequence != sequence_ ||
        header.bytes > options_.slot_bytes)
        return damaged(index, header);
    if (index == 0)
        header_ = header;
    else if (memcmp(&header_, &header, sizeof header) != 0)
        return damaged(index, header);
    stripe.begin += sizeof header;
    stripe.headed = true;
    stripe.done = 0;
    return true;
}

Result<bool> TcpReceiver::read_share(int index, std::byte* target) {
    Stripe& stripe = stripes_[size_t(index)];
    const Share share = share_of(header_.bytes, index, connection_->stripes());
    const uint64_t bytes = share.end - share.begin;
    if (stripe.done < bytes && stripe.begin < stripe.end) {
        const size_t ahead = std::min<uint64_t>(bytes - stripe.done, stripe.end - stripe.begin);
        memcpy(target + share.begin + stripe.done, stripe.stash.get() + stripe.begin, ahead);
        stripe.begin += ahead;
        stripe.done += ahead;
    }
    while (stripe.done < bytes) {
        auto got = net::read_some(connection_->socket(index), target + share.begin + stripe.done, bytes - stripe.done);
        if (!got) return broken(index, got.status());
        if (*got == 0) return false;
        stripe.done += *got;
    }
    return true;
}

// True: the current message's header has been read.
Result<bool> TcpReceiver::read_head() {
    if (stripes_.empty()) [[unlikely]] {
        auto connected = connect();
        if (!connected || !*connected) return connected;
    }
    return read_header(0);
}

// Call it after read_head(). True: the whole message is at `target`.
Result<bool> TcpReceiver::read_message(std::byte* target) {
    bool whole = true;
    for (int index = 0; index < connection_->stripes(); ++index) {
        if (!has_part(header_.bytes, index, connection_->stripes())) continue;
        auto there = read_header(index);
        if (there && *there) there = read_share(index, target);
        if (!there) return there;
        whole = whole && *there;
    }
    return whole;
}

void TcpReceiver::finish() {
    ++sequence_;
    for (Stripe& stripe : stripes_) stripe.headed = false;
    in_slot_ = whole_ = false;
}

Result<Slot> TcpReceiver::receive(SlotInfo& info) {
    if (!whole_) {
        auto there = read_head();
        if (there && *there) {
            if (!slot_) {
                auto memory = allocate_slot(options_.slot_bytes);
                if (!memory) return memory.take_status();
                slot_ = std::move(*memory);
            }
            in_slot_ = true;
            there = read_message(slot_.get());
        }
        if (!there) return there.take_status();
        if (!*there) return Slot{};
        whole_ = true;
    }
    info = this->info();
    return Slot{slot_.get(), options_.slot_bytes};
}

Status TcpReceiver::release() {
    finish();
    return ok();
}

Result<bool> TcpReceiver::receive_into(std::byte* target, size_t capacity, SlotInfo& info) {
    if (in_slot_) [[unlikely]]  // receive() has begun to read this message
        return Receiver::receive_into(target, capacity, info);
    auto there = read_head();
    if (!there || !*there) return there;
    info = this->info();  // also if the message is too large: it may belong to another call
    if (header_.bytes > capacity)
        return fail(error::internal_damaged, "rank {} got a message of {} bytes from rank {} where {} were expected",
                    options_.self, header_.bytes, options_.peer, capacity)
            .about({.rank = options_.peer, .peer = options_.self});
    there = read_message(target);
    if (!there || !*there) return there;
    finish();
    return true;
}

void TcpReceiver::add_wakeups(Wakeups& wakeups) {
    if (stripes_.empty()) return connection_->add_descriptors(wakeups.descriptors);
    const bool known = stripes_[0].headed;
    for (int index = 0; index < (known ? connection_->stripes() : 1); ++index) {
        const Share share = share_of(header_.bytes, index, connection_->stripes());
        const Stripe& stripe = stripes_[size_t(index)];
        if (!known || (has_part(header_.bytes, index, connection_->stripes()) &&
                       (!stripe.headed || stripe.done < share.end - share.begin)))
            wakeups.descriptors.push_back({connection_->socket(index), POLLIN, 0});
    }
}

}  // namespace weft::internal::tcp
