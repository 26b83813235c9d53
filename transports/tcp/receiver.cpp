#include "transports/tcp/receiver.hpp"

#include <cstring>

#include "src/net/socket.hpp"

namespace weft::tcp {

TcpReceiver::TcpReceiver(const ConnectionOptions& options, std::shared_ptr<net::Door> door, uint64_t token)
    : options_(options), door_(std::move(door)), token_(token) {
    door_->admit(*options_.identity);
}

TcpReceiver::~TcpReceiver() {
    while (door_->claim(options_.identity->name, net::data, token_)) {
    }
    door_->dismiss(options_.identity->name);
}

Status TcpReceiver::claim() {
    WEFT_TRY(door_->progress());
    while (missing_ > 0) {
        auto arrival = door_->claim(options_.identity->name, net::data, token_);
        if (!arrival) break;
        const int stripe = stripe_of(arrival->purpose.detail), stripes = stripes_of(arrival->purpose.detail);
        if (stripes_.empty() && stripes >= 1 && stripes <= stripes_max) {
            stripes_ = std::vector<Stripe>(size_t(stripes));
            missing_ = size_t(stripes);
        }
        if (size_t(stripes) != stripes_.size() || stripe >= stripes || stripes_[size_t(stripe)].socket)
            return fail(weftInternalError, "rank {} got stripe {} of {} from rank {} at {}, which cannot be",
                        options_.self, stripe, stripes, options_.peer, arrival->peer.text());
        Stripe& place = stripes_[size_t(stripe)];
        place.socket = std::move(arrival->socket);
        place.peer = arrival->peer;
        place.stash = std::make_unique<std::byte[]>(Stripe::stash_bytes);
        --missing_;
    }
    if (missing_ == 0) return ok();
    if (const Status trouble = door_->trouble(options_.identity->name); !trouble)
        return fail(trouble.code(), "rank {} waits for rank {}: {}", options_.self, options_.peer, trouble.sentence());
    return ok();
}

Status TcpReceiver::broken(const Stripe& stripe, const Status& how) const {
    const bool inside = stripe.headed || stripe.begin < stripe.end;
    return fail(how.code(), "rank {} cannot receive from rank {} at {}: {}{}", options_.self, options_.peer,
                stripe.peer.text(), how.sentence(), inside ? ", in the middle of a message" : "");
}

Status TcpReceiver::lies(const Stripe& stripe, const MessageHeader& header) const {
    if (header.magic == MessageHeader::expected_magic && header.sequence == sequence_ &&
        header.bytes > options_.slot_bytes)
        return fail(weftInternalError, "rank {} got a message from rank {} at {} that claims {} bytes; slots hold {}",
                    options_.self, options_.peer, stripe.peer.text(), header.bytes, options_.slot_bytes);
    return fail(weftInternalError,
                "rank {} got no message {} from rank {} at {}, but one numbered {}, of {} bytes: the stream is damaged",
                options_.self, sequence_, options_.peer, stripe.peer.text(), header.sequence, header.bytes);
}

// True: the stripe's header of the current message has been read and is right. The first stripe's says what the message
// is; the others' must say the same.
Result<bool> TcpReceiver::read_header(Stripe& stripe, bool first) {
    if (stripe.headed) return true;
    if (stripe.end - stripe.begin < sizeof(MessageHeader)) {
        if (stripe.begin == stripe.end) stripe.begin = stripe.end = 0;
        if (Stripe::stash_bytes - stripe.begin < sizeof(MessageHeader)) {
            memmove(stripe.stash.get(), stripe.stash.get() + stripe.begin, stripe.end - stripe.begin);
            stripe.end -= stripe.begin;
            stripe.begin = 0;
        }
        // Messages are mostly as large as the last one: of a large one only the header, so that the rest is read to its
        // place.
        const size_t most = header_.bytes + sizeof(MessageHeader) <= Stripe::stash_bytes
                                ? Stripe::stash_bytes - stripe.end
                                : sizeof(MessageHeader) - (stripe.end - stripe.begin);
        auto got = net::read_some(stripe.socket.number(), stripe.stash.get() + stripe.end, most);
        if (!got) return broken(stripe, got.status());
        stripe.end += *got;
        if (stripe.end - stripe.begin < sizeof(MessageHeader)) return false;
    }
    MessageHeader header;
    memcpy(&header, stripe.stash.get() + stripe.begin, sizeof header);
    if (header.magic != MessageHeader::expected_magic || header.sequence != sequence_ ||
        header.bytes > options_.slot_bytes)
        return lies(stripe, header);
    if (first)
        header_ = header;
    else if (memcmp(&header_, &header, sizeof header) != 0)
        return lies(stripe, header);
    stripe.begin += sizeof header;
    stripe.headed = true;
    stripe.done = 0;
    return true;
}

Result<bool> TcpReceiver::read_share(Stripe& stripe, int index, std::byte* target) {
    const Share share = share_of(header_.bytes, index, int(stripes_.size()));
    const uint64_t bytes = share.end - share.begin;
    if (stripe.done < bytes && stripe.begin < stripe.end) {
        const size_t ahead = std::min<uint64_t>(bytes - stripe.done, stripe.end - stripe.begin);
        memcpy(target + share.begin + stripe.done, stripe.stash.get() + stripe.begin, ahead);
        stripe.begin += ahead;
        stripe.done += ahead;
    }
    while (stripe.done < bytes) {
        auto got = net::read_some(stripe.socket.number(), target + share.begin + stripe.done, bytes - stripe.done);
        if (!got) return broken(stripe, got.status());
        if (*got == 0) return false;
        stripe.done += *got;
    }
    return true;
}

// True: the current message's header is there.
Result<bool> TcpReceiver::read_head() {
    if (missing_ > 0) [[unlikely]] {
        WEFT_TRY(claim());
        if (missing_ > 0) return false;
    }
    return read_header(stripes_[0], true);
}

// After read_head(). True: all of the message is at `target`.
Result<bool> TcpReceiver::read_message(std::byte* target) {
    bool whole = true;
    for (size_t index = 0; index < stripes_.size(); ++index) {
        if (!has_part(header_.bytes, int(index), int(stripes_.size()))) continue;
        auto there = read_header(stripes_[index], false);
        if (there && *there) there = read_share(stripes_[index], int(index), target);
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
    if (in_slot_) [[unlikely]]  // receive() has begun with this message
        return Receiver::receive_into(target, capacity, info);
    auto there = read_head();
    if (!there || !*there) return there;
    info = this->info();  // of what is too large as well: it may be another call's
    if (header_.bytes > capacity)
        return fail(weftInternalError, "rank {} got a message of {} bytes from rank {} where {} were expected",
                    options_.self, header_.bytes, options_.peer, capacity);
    there = read_message(target);
    if (!there || !*there) return there;
    finish();
    return true;
}

void TcpReceiver::add_descriptors(std::vector<pollfd>& list) const {
    if (missing_ > 0) {
        list.push_back({door_->descriptor(), POLLIN, 0});
        // Another thread may take the connection in while we sleep.
        list.push_back({door_->arrivals_descriptor(options_.identity->name), POLLIN, 0});
        return;
    }
    const bool known = stripes_[0].headed;
    for (size_t index = 0; index < (known ? stripes_.size() : 1); ++index) {
        const Share share = share_of(header_.bytes, int(index), int(stripes_.size()));
        const Stripe& stripe = stripes_[index];
        if (!known || (has_part(header_.bytes, int(index), int(stripes_.size())) &&
                       (!stripe.headed || stripe.done < share.end - share.begin)))
            list.push_back({stripe.socket.number(), POLLIN, 0});
    }
}

}  // namespace weft::tcp
