#include "src/p2p/transfer_engine.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/small_copy.hpp"
#include "src/peer_access/limits.hpp"
#include "src/segment/failure_record.hpp"

namespace weft::internal {

namespace {

constexpr size_t pull_bytes = 1 << 20;  // between two checks for failures
constexpr int slots_at_once = 8;        // of one peer, before the next peer's turn
// A message between ranks of a host goes in pieces, so that both ends copy at the same time. Large messages have larger
// pieces: if both ends share a core, each turn then moves more.
constexpr size_t least_piece = 32 << 10, pieces = 8;

}  // namespace

void TransferEngine::copy_in(TransferPeer& peer, void* slot, const void* from, size_t bytes) const {
    if (bytes <= 64)
        copy_small(slot, from, bytes);
    else
        peer.stores.copy(*cpu_kernels_, slot, from, bytes);
}

void TransferEngine::copy_out(void* to, const void* from, size_t bytes, size_t whole) const {
    if (bytes <= 64)
        copy_small(to, from, bytes);
    else
        cpu_kernels_->copy({to, from, bytes, whole < streamed_least_ ? Stores::ordinary : Stores::streaming});
}

Progress TransferEngine::send(TransferPeer& peer) {
    Sender& target = *peer.link.target;
    for (int slots = 0; !peer.sends.empty() && slots < slots_at_once; ++slots) {
        Transfer& transfer = transfers_->front(peer.sends);
        const std::byte* data = transfer.data + transfer.done;
        const size_t left = transfer.bytes - transfer.done,
                     piece = std::max(least_piece, round_to_line((transfer.bytes + pieces - 1) / pieces));
        const Progress so_far = slots > 0 ? Progress::moved : Progress::blocked;
        if (peer.link.remote) {
            const size_t bytes = std::min(left, peer.link.slot_bytes);
            const RegisteredMemory* const memory =
                peer.link.user_memory && bytes >= PostPlan::least ? peer.link.user_memory->find(data, bytes) : nullptr;
            const SlotInfo info{bytes, transfer.count, transfer.mark};
            auto sent = memory ? target.post(data, memory, info) : target.send(data, info);
            if (!sent) return fails(sent.take_status());
            peer.pushing = true;
            if (!*sent) return so_far;
            transfer.done += bytes;
        } else {
            auto slot = target.acquire();
            if (!slot) return fails(slot.take_status());
            if (!*slot) return so_far;
            const uint64_t address = transfer.done == 0 && left >= peer_limits::zero_copy_least
                                         ? remote_address(data, left, peer.link.reads_us, peer.link.same_process,
                                                          left <= peer_limits::cma_message_most)
                                         : 0;
            const bool zero_copy = address != 0;
            const size_t bytes = zero_copy ? left : std::min({left, slot->capacity, piece});
            if (!zero_copy) copy_in(peer, slot->data, data, bytes);
            if (Status published = target.publish({bytes, transfer.count, transfer.mark, address}); !published)
                return fails(std::move(published));
            peer.zero_copy_pending |= zero_copy;
            transfer.done += bytes;
        }
        if (transfer.done == transfer.bytes) transfers_->pop(peer.sends);
    }
    return Progress::moved;
}

Progress TransferEngine::receive(int rank, TransferPeer& peer) {
    Receiver& source = *peer.link.source;
    for (int slots = 0; !peer.receives.empty() && slots < slots_at_once; ++slots) {
        Transfer& transfer = transfers_->front(peer.receives);
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
        if (transfer.done == transfer.bytes) transfers_->pop(peer.receives);
    }
    return Progress::moved;
}

// The sender continues when we release the slot that holds the address. A sender that has failed may have freed its
// buffer. Then the abort word is set, and the data that was read is discarded.
Progress TransferEngine::pull(int rank, TransferPeer& peer) {
    Transfer& transfer = transfers_->front(peer.receives);
    const size_t bytes = std::min(pull_bytes, transfer.bytes - transfer.done);
    if (!memory_.remote_memory_valid()) return fails(FailureRecord(*segment_).status());
    const uint64_t address = peer.pulled_from + transfer.done;
    if (const std::byte* here = mapped_bytes(address, peer.link.arena, peer.link.same_process))
        copy_out(transfer.data + transfer.done, here, bytes, transfer.bytes);
    else if (Status read = memory_.read(rank, transfer.data + transfer.done, address, bytes); !read)
        return fails(std::move(read));
    if (!memory_.remote_memory_valid()) return fails(FailureRecord(*segment_).status());
    transfer.done += bytes;
    if (transfer.done < transfer.bytes) return Progress::moved;
    peer.pulled_from = 0;
    transfers_->pop(peer.receives);
    if (Status released = peer.link.source->release(); !released) return fails(std::move(released));
    return Progress::moved;
}

// Offers registered memory of the user to the network messages that come next, of all transfers in the queue. The sender
// cuts its messages like this.
Status TransferEngine::offer_targets(TransferPeer& peer) {
    Receiver& source = *peer.link.source;
    OfferedPiece& piece = peer.next_offer;
    const uint64_t next = source.next();
    if (piece.transfer == Transfers::none || piece.message <= next)
        piece = {peer.receives.first, transfers_->front(peer.receives).done, next, false};
    while (piece.message < next + peer.link.offers) {
        const Transfer& transfer = transfers_->at(piece.transfer);
        if (piece.ended && transfer.next == Transfers::none) return ok();
        if (piece.ended) {
            piece = {transfer.next, 0, piece.message, false};
            continue;
        }
        const size_t bytes = std::min(transfer.bytes - piece.done, peer.link.slot_bytes);
        std::byte* const target = transfer.data + piece.done;
        RegisteredMemory* const memory =
            bytes >= PostPlan::least ? peer.link.user_memory->find(target, bytes) : nullptr;
        if (memory) {
            // If it is declined, the message takes a slot.
            auto offered = source.offer(target, bytes, memory, piece.message);
            if (!offered) return offered.take_status();
        }
        piece.done += bytes;
        ++piece.message;
        piece.ended = piece.done == transfer.bytes;
    }
    return ok();
}

// Receives into the user's buffer, without a slot between.
Progress TransferEngine::receive_remote(int rank, TransferPeer& peer) {
    const auto offer = [&] {
        const bool any = peer.link.offers > 0 && !peer.link.user_memory->empty() && !peer.receives.empty();
        return any ? offer_targets(peer) : ok();
    };
    if (Status offered = offer(); !offered) return fails(std::move(offered));
    for (int slots = 0; !peer.receives.empty() && slots < slots_at_once; ++slots) {
        Transfer& transfer = transfers_->front(peer.receives);
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
        if (transfer.done == transfer.bytes) transfers_->pop(peer.receives);
        // An offer carries the credit of the message before it, so it should be the first that the sender gets.
        if (Status offered = offer(); !offered) return fails(std::move(offered));
    }
    return Progress::moved;
}

// Messages to oneself: both ends are here, so there is no waiting.
Progress TransferEngine::move_own(TransferPeer& self) {
    while (!self.sends.empty() && !self.receives.empty()) {
        const Transfer &from = transfers_->front(self.sends), &to = transfers_->front(self.receives);
        if (compared(from.mark) != compared(to.mark) || from.count != to.count)
            return differs(rank_, to, {0, from.count, from.mark});
        if (from.bytes > 0 && from.data != to.data) memmove(to.data, from.data, from.bytes);
        transfers_->pop(self.sends);
        transfers_->pop(self.receives);
    }
    const bool sends = !self.sends.empty();
    if (!sends && self.receives.empty()) return Progress::moved;
    const Transfer& alone = transfers_->front(sends ? self.sends : self.receives);
    differing_ = !self.sends.empty() ? self.sends.first : self.receives.first;
    return fails({error::usage_self_message, message_to_oneself(rank_, sends, alone.view())});
}

Progress TransferEngine::differs(int rank, const Transfer& transfer, const SlotInfo& came) {
    differing_ = transfers_->index_of(transfer);
    return fails(fail(error::mismatch_message, "{}",
                      differing_messages(rank, {came.fingerprint, came.operation}, rank_, transfer.view()))
                     .about({.rank = rank, .peer = rank_}));
}

}  // namespace weft::internal
