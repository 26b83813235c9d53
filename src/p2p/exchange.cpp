#include "src/p2p/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/small_copy.hpp"

namespace weft::internal {

namespace {

// Sizes of zero-copy messages (perf/results). Below, two copies through a slot cost less than the address exchange.
// Above, if CMA copies, two cores that copy through slots in their caches are faster than one core in the kernel.
constexpr size_t zero_copy_least = 16 << 10, zero_copy_most = 2 << 20;
constexpr size_t pull_bytes = 1 << 20;  // between two checks for failures
constexpr int slots_at_once = 8;        // of one peer, before the next peer's turn

}  // namespace

Exchange::Exchange(Segment& group, int rank, const CpuKernels& cpu_kernels, size_t streamed_least, Connect connect)
    : segment_(&group),
      rank_(rank),
      cpu_kernels_(&cpu_kernels),
      streamed_least_(streamed_least),
      connect_(std::move(connect)),
      memory_(group, rank) {}

void Exchange::add(int peer, bool outgoing, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose) {
    if (peers_.empty()) [[unlikely]]
        peers_.resize(size_t(segment_->ranks()));
    Peer& other = peers_[size_t(peer)];
    Queue& queue = outgoing ? other.sends : other.receives;
    const uint16_t number = number_of(purpose, queue);
    if (!of_collective(purpose.by)) ++queue.begun;
    const int index = int(transfers_.size());
    transfers_.push_back({static_cast<std::byte*>(data), count, count * size_of(type), 0,
                          message_mark(type, purpose.by, number, purpose.reduction), none});
    if (queue.first == none)
        queue.first = index;
    else
        transfers_[size_t(queue.last)].next = index;
    queue.last = index;
    if (!other.busy) other.sends.oldest = other.receives.oldest = none;
    if (queue.oldest == none) queue.oldest = index;
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
    if (rank == rank_ || bytes >= zero_copy_least || peers_.empty()) return false;
    const PeerLink& link = peers_[size_t(rank)].link;
    return link.connected && !link.remote && bytes <= link.slot_bytes;
}

bool Exchange::send_at_once(int rank, const void* data, uint64_t count, weftDataType_t type, const CallTag& purpose) {
    const size_t bytes = count * size_of(type);
    Peer& peer = peers_[size_t(rank)];
    auto slot = peer.link.target->acquire();
    if (!slot || !*slot) return false;
    copy_in(peer, slot->data, data, bytes);
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
    copy_out(data, slot->data, bytes, bytes);
    if (!peer.link.source->release()) return false;
    ++peer.receives.begun;
    return true;
}

void Exchange::pop(Queue& queue) {
    queue.first = front(queue).next;
    if (queue.first == none) queue.last = none;
}

void Exchange::copy_in(Peer& peer, void* slot, const void* from, size_t bytes) const {
    if (bytes <= 64)
        copy_small(slot, from, bytes);
    else
        peer.stores.copy(*cpu_kernels_, slot, from, bytes);
}

void Exchange::copy_out(void* to, const void* from, size_t bytes, size_t whole) const {
    if (bytes <= 64)
        copy_small(to, from, bytes);
    else
        cpu_kernels_->copy({to, from, bytes, whole < streamed_least_ ? Stores::ordinary : Stores::streaming});
}

Progress Exchange::fails(Status failure) {
    failure_ = std::move(failure);
    return Progress::failed;
}

Progress Exchange::advance() {
    missing_.clear();
    networked_ = connecting_ = false;
    bool moved = false;
    for (size_t i = 0; i < busy_.size();) {
        const int rank = busy_[i];
        const Progress progress = advance(rank);
        if (progress == Progress::failed) [[unlikely]]
            return progress;
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
    if (rank == rank_) return move_own(peer);
    if (!peer.link.connected) [[unlikely]] {
        if (Status step = connect_(rank, peer.link); !step) return fails(std::move(step));
        connecting_ |= !peer.link.connected;
    }
    Progress sent = Progress::blocked, received = Progress::blocked;
    if (peer.sends.first != none && peer.link.target) sent = send_some(peer);
    if (sent == Progress::failed) [[unlikely]]
        return sent;
    if (peer.receives.first != none && peer.link.source)
        received = peer.link.remote ? receive_remote(rank, peer) : receive_some(rank, peer);
    if (peer.pushing && received != Progress::failed) {
        auto through = peer.link.target->progress();
        if (!through) return fails(through.take_status());
        peer.pushing = !*through;
    }
    return received == Progress::blocked ? sent : received;
}

bool Exchange::ended(Peer& peer) {
    if (peer.zero_copy_pending) peer.zero_copy_pending = !peer.link.target->zero_copy_done();
    return peer.sends.first == none && peer.receives.first == none && !peer.pushing && !peer.zero_copy_pending;
}

Progress Exchange::send_some(Peer& peer) {
    Sender& target = *peer.link.target;
    for (int slots = 0; peer.sends.first != none && slots < slots_at_once; ++slots) {
        Transfer& transfer = front(peer.sends);
        const std::byte* data = transfer.data + transfer.done;
        const size_t left = transfer.bytes - transfer.done;
        const Progress so_far = slots > 0 ? Progress::moved : Progress::blocked;
        if (peer.link.remote) {
            const size_t bytes = std::min(left, peer.link.slot_bytes);
            auto sent = target.send(data, {bytes, transfer.count, transfer.mark});
            if (!sent) return fails(sent.take_status());
            peer.pushing = true;
            if (!*sent) return so_far;
            transfer.done += bytes;
        } else {
            auto slot = target.acquire();
            if (!slot) return fails(slot.take_status());
            if (!*slot) return so_far;
            const uint64_t address =
                transfer.done == 0 && left >= zero_copy_least
                    ? remote_address(data, left, peer.link.reads_us, peer.link.same_process, left <= zero_copy_most)
                    : 0;
            const bool zero_copy = address != 0;
            const size_t bytes = zero_copy ? left : std::min(left, slot->capacity);
            if (!zero_copy) copy_in(peer, slot->data, data, bytes);
            if (Status published = target.publish({bytes, transfer.count, transfer.mark, address}); !published)
                return fails(std::move(published));
            peer.zero_copy_pending |= zero_copy;
            transfer.done += bytes;
        }
        if (transfer.done == transfer.bytes) pop(peer.sends);
    }
    return Progress::moved;
}

Progress Exchange::receive_some(int rank, Peer& peer) {
    Receiver& source = *peer.link.source;
    for (int slots = 0; peer.receives.first != none && slots < slots_at_once; ++slots) {
        Transfer& transfer = front(peer.receives);
        if (peer.pulled_from != 0) return pull(rank, peer);
        SlotInfo came;
        auto slot = source.receive(came);
        if (!slot) return fails(slot.take_status());
        if (!*slot) return slots > 0 ? Progress::moved : Progress::blocked;
        if (compared(came.fingerprint) != compared(transfer.mark) || came.operation != transfer.count) [[unlikely]]
            return differs(rank, transfer, came);
        if (came.address != 0) {
            peer.pulled_from = came.address;
            return pull(rank, peer);
        }
        if (came.bytes > transfer.bytes - transfer.done)
            return fails(fail(error::internal_damaged, "rank {} got {} bytes from rank {} where {} were left", rank_,
                              came.bytes, rank, transfer.bytes - transfer.done));
        copy_out(transfer.data + transfer.done, slot->data, came.bytes, transfer.bytes);
        transfer.done += came.bytes;
        if (Status released = source.release(); !released) return fails(std::move(released));
        if (transfer.done == transfer.bytes) pop(peer.receives);
    }
    return Progress::moved;
}

// The sender continues when we release the slot that holds the address. A sender that has failed may have freed its
// buffer. Then the abort word is set, and the data that was read is discarded.
Progress Exchange::pull(int rank, Peer& peer) {
    Transfer& transfer = front(peer.receives);
    const size_t bytes = std::min(pull_bytes, transfer.bytes - transfer.done);
    if (!memory_.remote_memory_valid()) return fails(segment_->abort_status());
    const uint64_t address = peer.pulled_from + transfer.done;
    if (const std::byte* here = mapped_bytes(address, peer.link.arena, peer.link.same_process))
        copy_out(transfer.data + transfer.done, here, bytes, transfer.bytes);
    else if (Status read = memory_.read(rank, transfer.data + transfer.done, address, bytes); !read)
        return fails(std::move(read));
    if (!memory_.remote_memory_valid()) return fails(segment_->abort_status());
    transfer.done += bytes;
    if (transfer.done < transfer.bytes) return Progress::moved;
    peer.pulled_from = 0;
    pop(peer.receives);
    if (Status released = peer.link.source->release(); !released) return fails(std::move(released));
    return Progress::moved;
}

// Receives into the user's buffer, without a slot between.
Progress Exchange::receive_remote(int rank, Peer& peer) {
    for (int slots = 0; peer.receives.first != none && slots < slots_at_once; ++slots) {
        Transfer& transfer = front(peer.receives);
        const size_t left = transfer.bytes - transfer.done;
        SlotInfo came;
        auto received =
            peer.link.source->receive_into(transfer.data + transfer.done, std::min(left, peer.link.slot_bytes), came);
        // A message that is too large for its buffer may be another one than the expected one.
        if (came.fingerprint != 0 &&
            (compared(came.fingerprint) != compared(transfer.mark) || came.operation != transfer.count)) [[unlikely]]
            return differs(rank, transfer, came);
        if (!received) return fails(received.take_status());
        if (!*received) return slots > 0 ? Progress::moved : Progress::blocked;
        transfer.done += came.bytes;
        if (transfer.done == transfer.bytes) pop(peer.receives);
    }
    return Progress::moved;
}

// Messages to oneself: both ends are here, so there is no waiting.
Progress Exchange::move_own(Peer& self) {
    while (self.sends.first != none && self.receives.first != none) {
        const Transfer &from = front(self.sends), &to = front(self.receives);
        if (compared(from.mark) != compared(to.mark) || from.count != to.count)
            return differs(rank_, to, {0, from.count, from.mark});
        if (from.bytes > 0 && from.data != to.data) memmove(to.data, from.data, from.bytes);
        pop(self.sends);
        pop(self.receives);
    }
    const bool sends = self.sends.first != none;
    if (!sends && self.receives.first == none) return Progress::moved;
    const Transfer& alone = front(sends ? self.sends : self.receives);
    differing_ = self.sends.first != none ? self.sends.first : self.receives.first;
    return fails({error::usage_self_message, message_to_oneself(rank_, sends, alone.view())});
}

Progress Exchange::differs(int rank, const Transfer& transfer, const SlotInfo& came) {
    differing_ = int(&transfer - transfers_.data());
    return fails(fail(error::mismatch_message, "{}",
                      differing_messages(rank, {came.fingerprint, came.operation}, rank_, transfer.view()))
                     .about({.rank = rank, .peer = rank_}));
}

void Exchange::add_descriptors(std::vector<pollfd>& list) const {
    for (const int rank : busy_) {
        const Peer& peer = peers_[size_t(rank)];
        if (!peer.link.remote) continue;
        if (peer.receives.first != none && peer.link.source) peer.link.source->add_descriptors(list);
        if (peer.link.target && (peer.sends.first != none || peer.pushing)) peer.link.target->add_descriptors(list);
    }
}

PartnerWait Exchange::awaited() const {
    for (const bool outgoing : {false, true})
        for (const int rank : busy_) {
            const Peer& peer = peers_[size_t(rank)];
            const Queue& queue = outgoing ? peer.sends : peer.receives;
            if (queue.first == none) continue;
            const bool both = caller_of(front(queue).mark) == Caller::send_receive;
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
        const Transfer& transfer = front(queue);
        return owed_message(rank_, outgoing, transfer.done > 0, transfer.view());
    }
    return fmt::format("has not taken what rank {} sent it", rank_);
}

bool Exchange::may_be_read_by(int rank) const {
    if (peers_.empty()) return false;
    const Peer& peer = peers_[size_t(rank)];
    return peer.zero_copy_pending && !peer.link.target->zero_copy_done();
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
    const auto add = [&](int first) {
        for (int place = first; place != none; place = transfers_[size_t(place)].next) places.push_back(size_t(place));
    };
    for (const int rank : busy_) {
        const Peer& peer = peers_[size_t(rank)];
        // A message that was sent but may not have arrived is not complete.
        add(peer.pushing || peer.zero_copy_pending ? peer.sends.oldest : peer.sends.first);
        add(peer.receives.first);
    }
    std::sort(places.begin(), places.end());
    const auto differing = std::find(places.begin(), places.end(), size_t(differing_));
    if (differing != places.end()) std::rotate(places.begin(), differing, differing + 1);
    return places;
}

}  // namespace weft::internal
