#include "src/rma/rma_messages.hpp"

#include <algorithm>
#include <cstring>

#include "src/segment/failure_record.hpp"

namespace weft::internal {

namespace {

constexpr uint32_t mark = 0x77696e64;  // of every slot of these links
constexpr int requests_at_once = 16;   // of one peer, before the next peer's turn

}  // namespace

RmaMessages::RmaMessages(Segment& group, int rank, Hooks hooks)
    : segment_(&group), rank_(rank), hooks_(std::move(hooks)), peers_(size_t(group.ranks())) {
    for (const int other : group.locals())
        if (other != rank && !group.same_process(rank, other)) neighbours_.push_back(other);
    oob_entries_.assign(neighbours_.size(), 0);
}

RmaMessages::Peer& RmaMessages::peer(int rank) {
    std::unique_ptr<Peer>& one = peers_[size_t(rank)];
    if (!one) {
        one = std::make_unique<Peer>();
        linked_.push_back(rank);
        networked_ |= !segment_->local(rank);
    }
    return *one;
}

void RmaMessages::ask(int rank, Request request) {
    Peer& other = peer(rank);
    other.used = other.unanswered = true;
    ++other.own;
    other.requests.push_back(request);
}

void RmaMessages::put(int rank, const WindowAddress& place, const std::byte* data, uint64_t bytes, int signal) {
    ask(rank, {{RequestKind::put, place.window, place.offset, bytes, signal, 0}, const_cast<std::byte*>(data)});
}

void RmaMessages::get(int rank, const WindowAddress& place, std::byte* data, uint64_t bytes) {
    Peer& other = peer(rank);
    other.wanted = data;
    other.wanted_bytes = bytes;
    other.waiting = true;
    ask(rank, {{RequestKind::get, place.window, place.offset, bytes, no_signal, 0}, nullptr});
}

void RmaMessages::accesses(int rank) {
    Peer& other = peer(rank);
    other.used = other.unanswered = other.pushing = true;
}

Status RmaMessages::breaks(int rank, Status why) {
    breaks(peer(rank), std::move(why));
    return trouble(rank);
}

bool RmaMessages::locally_complete(int rank) const {
    const Peer* other = peers_[size_t(rank)].get();
    return !other || (other->own == 0 && !other->pushing && !other->waiting);
}

Status RmaMessages::trouble(int rank) const {
    const Peer* other = peers_[size_t(rank)].get();
    return other && !other->trouble ? other->trouble.copy() : ok();
}

bool RmaMessages::connecting(int rank) const {
    const Peer* other = peers_[size_t(rank)].get();
    return !other || !other->link.connected;
}

std::vector<int> RmaMessages::unanswered() const {
    std::vector<int> all;
    for (const int rank : linked_)
        if (peers_[size_t(rank)]->unanswered) all.push_back(rank);
    return all;
}

// A peer that needs a link listens and puts an out-of-band entry. Then this rank makes its end.
void RmaMessages::look_for_callers() {
    const auto look = [&](int rank) {
        if (!peers_[size_t(rank)] && hooks_.called_by(rank)) (void)peer(rank);
    };
    for (size_t i = 0; i < neighbours_.size(); ++i) {
        const uint32_t entries = segment_->row(neighbours_[i]).oob_entries.load(std::memory_order_acquire);
        if (entries != std::exchange(oob_entries_[i], entries)) look(neighbours_[i]);
    }
    if (segment_->one_host()) return;
    // Pairs with RemoteOobStore::deliver(), which stores the entry before the count, so that no entry is missed.
    const uint32_t received = segment_->header().oob_received.load(std::memory_order_acquire);
    if (received == std::exchange(oob_received_, received)) return;
    for (int rank = 0; rank < segment_->ranks(); ++rank)
        if (!segment_->local(rank)) look(rank);
}

bool RmaMessages::serve(const RankSet* awaited) {
    look_for_callers();
    bool moved = false, own = false;
    for (size_t i = 0; i < linked_.size(); ++i) {
        Peer& other = *peers_[size_t(linked_[i])];
        if (!other.trouble) continue;
        const uint64_t before = other.steps;
        moved |= serve(linked_[i], other);
        own |= other.steps != before && awaited && awaited->contains(linked_[i]);
    }
    if (!awaited) return std::exchange(moved_beside_, false) || moved;
    moved_beside_ |= moved && !own;
    return own;
}

// A peer that has left matters only to the ranks that wait for it. Any other failure aborts the communicator, because
// the peer would wait for this rank.
bool RmaMessages::breaks(Peer& other, Status why) {
    if (why.code() != weftRemoteError) FailureRecord(*segment_).raise(why, rank_);
    other.trouble = std::move(why);
    return true;
}

bool RmaMessages::serve(int rank, Peer& other) {
    if (!other.link.connected) {
        if (Status step = hooks_.connect(rank, other.link); !step) return breaks(other, std::move(step));
        if (!other.link.connected) return false;
    }
    bool moved = false;
    auto pushed = push(other);
    if (!pushed) return breaks(other, pushed.take_status());
    moved |= *pushed;
    auto pulled = pull(rank, other);
    if (!pulled) return breaks(other, pulled.take_status());
    return moved || *pulled;
}

Result<bool> RmaMessages::push(Peer& other) {
    Sender& sender = *other.link.target;
    bool moved = false;
    for (int slots = 0; !other.requests.empty() && slots < requests_at_once; ++slots) {
        Request& request = other.requests.front();
        const uint64_t bytes = request.header.kind == RequestKind::get ? 0 : request.header.bytes;
        if (!request.begun) {
            Frame frame;
            const uint64_t inline_length = bytes <= sizeof frame.inline_data ? bytes : 0;
            frame.header = request.header;
            if (inline_length > 0) memcpy(frame.inline_data, request.data, inline_length);
            auto sent =
                sender.send(reinterpret_cast<const std::byte*>(&frame), {sizeof(Header) + inline_length, 0, mark});
            if (!sent) return sent;
            if (!*sent) break;
            request.begun = true;
            request.done = inline_length;
        } else {
            const uint64_t piece = std::min<uint64_t>(bytes - request.done, other.link.slot_bytes);
            auto sent = sender.send(request.data + request.done, {piece, 0, mark});
            if (!sent) return sent;
            if (!*sent) break;
            request.done += piece;
        }
        moved = other.pushing = true;
        other.steps += request.own;
        if (request.done < bytes) continue;
        other.own -= request.own;
        other.requests.pop_front();
    }
    if (other.pushing) {
        auto through = sender.progress();
        if (!through) return through;
        moved |= *through;
        other.pushing = !*through;
    }
    return moved;
}

Result<bool> RmaMessages::pull(int rank, Peer& other) {
    Receiver& receiver = *other.link.source;
    bool moved = false;
    for (int slots = 0; slots < requests_at_once; ++slots) {
        SlotInfo info;
        const bool rest = other.left > 0;
        std::byte* target = rest ? other.target : reinterpret_cast<std::byte*>(&other.frame);
        const size_t room = rest ? std::min<uint64_t>(other.left, other.link.slot_bytes) : sizeof(Frame);
        auto received = receiver.receive_into(target, room, info);
        if (!received) return received;
        if (!*received) break;
        moved = true;
        if (info.fingerprint != mark || (rest ? info.bytes != room : info.bytes < sizeof(Header)))
            return fail(error::internal_damaged,
                        "rank {} got a window message of {} bytes from rank {}, which no such message has", rank_,
                        info.bytes, rank);
        if (rest) {
            other.target += room;
            other.left -= room;
        } else {
            WEFT_TRY(take(rank, other));
        }
        other.steps += other.frame.header.kind != RequestKind::get;
        if (other.left == 0) finish(rank, other);
    }
    return moved;
}

// A frame has arrived.
Status RmaMessages::take(int rank, Peer& other) {
    const Header& header = other.frame.header;
    if (header.kind == RequestKind::answer) {
        if (!other.waiting || header.bytes != other.wanted_bytes)
            return fail(error::internal_damaged,
                        "rank {} got an answer of {} bytes from rank {} that it did not ask for", rank_, header.bytes,
                        rank);
        other.target = other.wanted;
    } else {
        other.target = header.bytes > 0 ? hooks_.memory(header.window, header.offset, header.bytes) : nullptr;
        if (header.bytes > 0 && !other.target)
            return fail(error::internal_damaged,
                        "rank {} asks for {} bytes at {} of window {}, which rank {} does not have", rank, header.bytes,
                        header.offset, header.window, rank_);
    }
    if (header.kind == RequestKind::get) return ok();
    if (header.bytes > sizeof other.frame.inline_data)
        other.left = header.bytes;
    else if (header.bytes > 0)
        memcpy(other.target, other.frame.inline_data, header.bytes);
    return ok();
}

// All data of the last frame has arrived.
void RmaMessages::finish(int rank, Peer& other) {
    const Header& header = other.frame.header;
    switch (header.kind) {
        case RequestKind::put:
            if (header.signal >= 0 && header.signal < WEFT_SIGNALS * WEFT_SIGNAL_CONTEXTS)
                hooks_.signalled(rank, header.signal);
            break;
        case RequestKind::get:
            other.requests.push_back(
                {{RequestKind::answer, 0, 0, header.bytes, no_signal, 0}, other.target, 0, false, false});
            break;
        case RequestKind::answer:
            other.waiting = false;
            other.unanswered = other.own > 0;
            break;
    }
}

void RmaMessages::add_wakeups(Wakeups& wakeups) const {
    for (const int rank : linked_) {
        const Peer& other = *peers_[size_t(rank)];
        if (!other.link.remote || !other.trouble) continue;
        if (other.link.source) other.link.source->add_wakeups(wakeups);
        if (other.link.target && (!other.requests.empty() || other.pushing)) other.link.target->add_wakeups(wakeups);
    }
}

void RmaMessages::abandon() {
    for (const int rank : linked_) {
        Peer& other = *peers_[size_t(rank)];
        other.requests.clear();
        other.own = 0;
        other.waiting = other.pushing = false;
        other.trouble = fail(error::rank_failed, "the communicator is dead");
    }
}

}  // namespace weft::internal
