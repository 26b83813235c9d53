#include "src/p2p/exchange.hpp"

#include <algorithm>

#include "src/peer_access/limits.hpp"

namespace weft::internal {

Exchange::Exchange(Segment& group, int rank, const CpuKernels& cpu_kernels, size_t streamed_least, Connect connect)
    : segment_(&group),
      rank_(rank),
      connect_(std::move(connect)),
      engine_(group, rank, cpu_kernels, streamed_least, transfers_) {}

void Exchange::add(int peer, bool outgoing, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose) {
    if (peers_.empty()) [[unlikely]]
        peers_.resize(size_t(segment_->ranks()));
    Peer& other = peers_[size_t(peer)];
    Queue& queue = outgoing ? other.sends : other.receives;
    const uint16_t number = number_of(purpose, queue);
    if (!of_collective(purpose.by)) ++queue.begun;
    if (!other.busy) other.sends.oldest = other.receives.oldest = other.next_offer.transfer = none;
    transfers_.add(queue, {static_cast<std::byte*>(data), count, count * size_of(type), 0,
                           message_mark(type, purpose.by, number, purpose.reduction), none});
    if (other.busy) return;
    other.busy = true;
    busy_.push_back(peer);
}

void Exchange::send(int peer, const void* data, uint64_t count, weftDataType_t type, const CallTag& purpose) {
    add(peer, true, const_cast<void*>(data), count, type, purpose);
}

void Exchange::receive(int peer, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose) {
    add(peer, false, data, count, type, purpose);
}

bool Exchange::is_simple(int rank, size_t bytes) const {
    if (rank == rank_ || bytes >= peer_limits::zero_copy_least || peers_.empty()) return false;
    const PeerLink& link = peers_[size_t(rank)].link;
    return link.connected && !link.remote && bytes <= link.slot_bytes;
}

bool Exchange::send_at_once(int rank, const void* data, uint64_t count, weftDataType_t type, const CallTag& purpose) {
    const size_t bytes = count * size_of(type);
    Peer& peer = peers_[size_t(rank)];
    auto slot = peer.link.target->acquire();
    if (!slot || !*slot) return false;
    engine_.copy_in(peer, slot->data, data, bytes);
    const uint32_t mark = message_mark(type, purpose.by, number_of(purpose, peer.sends), purpose.reduction);
    if (!peer.link.target->publish({bytes, count, mark})) return false;
    ++peer.sends.begun;
    return true;
}

bool Exchange::receive_at_once(int rank, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose) {
    const size_t bytes = count * size_of(type);
    Peer& peer = peers_[size_t(rank)];
    SlotInfo came;
    auto slot = peer.link.source->receive(came);
    if (!slot || !*slot) return false;
    const uint32_t mark = message_mark(type, purpose.by, number_of(purpose, peer.receives), purpose.reduction);
    if (compared(came.fingerprint) != compared(mark) || came.operation != count || came.address != 0 ||
        came.bytes != bytes) [[unlikely]]
        return false;
    engine_.copy_out(data, slot->data, bytes, bytes);
    if (!peer.link.source->release()) return false;
    ++peer.receives.begun;
    return true;
}

Progress Exchange::advance() {
    missing_.clear();
    networked_ = connecting_ = false;
    bool moved = false;
    for (size_t i = 0; i < busy_.size();) {
        const int rank = busy_[i];
        const Progress progress = advance(rank);
        if (progress == Progress::failed) [[unlikely]] {
            missing_.insert(rank);  // its death may be the cause
            return progress;
        }
        moved |= progress == Progress::moved;
        Peer& peer = peers_[size_t(rank)];
        if (ended(peer)) {
            peer.busy = false;
            busy_[i] = busy_.back();
            busy_.pop_back();
            continue;
        }
        missing_.insert(rank);
        networked_ |= peer.link.remote;
        ++i;
    }
    if (busy_.empty()) {
        transfers_.clear();
        return Progress::done;
    }
    return moved ? Progress::moved : Progress::blocked;
}

Progress Exchange::advance(int rank) {
    Peer& peer = peers_[size_t(rank)];
    if (rank == rank_) return engine_.move_own(peer);
    if (!peer.link.connected) [[unlikely]] {
        if (Status step = connect_(rank, peer.link); !step) return engine_.fails(std::move(step));
        connecting_ |= !peer.link.connected;
    }
    Progress sent = Progress::blocked, received = Progress::blocked;
    if (peer.sends.first != none && peer.link.target) sent = engine_.send(peer);
    if (sent == Progress::failed) [[unlikely]]
        return sent;
    if (peer.receives.first != none && peer.link.source)
        received = peer.link.remote ? engine_.receive_remote(rank, peer) : engine_.receive(rank, peer);
    if (peer.pushing && received != Progress::failed) {
        auto through = peer.link.target->progress();
        if (!through) return engine_.fails(through.take_status());
        peer.pushing = !*through;
    }
    return received == Progress::blocked ? sent : received;
}

bool Exchange::ended(Peer& peer) {
    if (peer.zero_copy_pending) peer.zero_copy_pending = !peer.link.target->zero_copy_done();
    return peer.sends.first == none && peer.receives.first == none && !peer.pushing && !peer.zero_copy_pending;
}

void Exchange::add_wakeups(Wakeups& wakeups) const {
    for (const int rank : busy_) {
        const Peer& peer = peers_[size_t(rank)];
        if (!peer.link.remote) continue;
        if (peer.receives.first != none && peer.link.source) peer.link.source->add_wakeups(wakeups);
        if (peer.link.target && (peer.sends.first != none || peer.pushing)) peer.link.target->add_wakeups(wakeups);
    }
}

PartnerWait Exchange::awaited() const {
    for (const bool outgoing : {false, true})
        for (const int rank : busy_) {
            const Peer& peer = peers_[size_t(rank)];
            const Queue& queue = outgoing ? peer.sends : peer.receives;
            if (queue.first == none) continue;
            const bool both = caller_of(transfers_.front(queue).mark) == Caller::send_receive;
            return {outgoing ? both ? PartnerWait::taking_of_both : PartnerWait::taking
                    : both   ? PartnerWait::message_of_both
                             : PartnerWait::message,
                    rank};
        }
    return {PartnerWait::taking, busy_.front()};
}

std::string Exchange::owed_by(int rank) const {
    const Peer& peer = peers_[size_t(rank)];
    for (const bool outgoing : {false, true}) {
        const Queue& queue = outgoing ? peer.sends : peer.receives;
        if (queue.first == none) continue;
        const Transfer& transfer = transfers_.front(queue);
        return owed_message(rank_, outgoing, transfer.done > 0, transfer.view());
    }
    return fmt::format("has not taken what rank {} sent it", rank_);
}

bool Exchange::may_be_read_by(int rank) const {
    if (peers_.empty()) return false;
    const Peer& peer = peers_[size_t(rank)];
    return peer.zero_copy_pending && !peer.link.target->zero_copy_done();
}

void Exchange::withdraw() {
    for (Peer& peer : peers_)
        if (peer.link.source && peer.link.offers > 0) peer.link.source->withdraw();
}

// Ends all messages. Peers that know addresses of ours may still read there.
void Exchange::abandon() {
    abandoned_ = unfinished();
    for (const int rank : busy_) {
        Peer& peer = peers_[size_t(rank)];
        peer.sends = peer.receives = {};
        peer.busy = false;
    }
    busy_.clear();
    transfers_.clear();
}

std::vector<size_t> Exchange::unfinished() const {
    if (busy_.empty()) return abandoned_;
    std::vector<size_t> places;
    for (const int rank : busy_) {
        const Peer& peer = peers_[size_t(rank)];
        // A message that was sent but may not have arrived is not complete.
        transfers_.append(peer.pushing || peer.zero_copy_pending ? peer.sends.oldest : peer.sends.first, places);
        transfers_.append(peer.receives.first, places);
    }
    std::sort(places.begin(), places.end());
    const auto differing = std::find(places.begin(), places.end(), size_t(engine_.differing()));
    if (differing != places.end()) std::rotate(places.begin(), differing, differing + 1);
    return places;
}

}  // namespace weft::internal
