// messages.hpp: any number of concurrent messages between ranks in one kernel; the host's counterpart is
// p2p/exchange.hpp. Each block serves some p2p channels, usually one. It moves one slot of any channel that is ready,
// so no order of sends and receives can deadlock. The first thread polls; all threads copy.
// Sending: a slot is free while `sent` is less than the number of slots ahead of `consumed`. The sender writes the piece,
// then the header with release. In a zero-copy message the header holds the piece's address instead, and the peer reads
// it until it consumes the slot.
// Receiving: the receiver waits for the header with the next number. It compares the mark and length with its own
// before it copies. For a peer that is reached over the network, both directions use this rank's memory on one channel,
// and the proxy acts for the peer (proxy_connections.hpp).
#pragma once
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/kernel_end.hpp"
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/gpu/kernels/message_counts.hpp"
#include "src/gpu/kernels/reduce.hpp"
#include "src/p2p/message_mark.hpp"

namespace weft::internal::cuda {

// A block's state, in its shared memory.
struct MessageBlock {
    struct P2pChannel {
        uint64_t done;            // bytes of the piece that have moved
        const std::byte* pulled;  // where the sender has the piece being received; null: in the slots
        uint32_t moved;           // slots in total
        uint16_t message;         // of the queue
        uint8_t queue, channel;
        uint8_t slots;    // a power of two
        bool zero_copy;   // the peer may be reading this rank's memory
        uint32_t wanted;  // number of the last slot that the proxy has been asked for
    };
    P2pChannel p2p_channels[message_p2p_max];
    // The next copy and its p2p channel.
    enum : int { all_done = -1, failed = -2 };
    int p2p;
    const std::byte* from;
    std::byte* to;
    size_t bytes;
};

class MessageKernel {
  public:
    WEFT_DEVICE MessageKernel(const Team& team, const MessageArguments& arguments, MessageBlock& block)
        : team_(team),
          a_(arguments),
          own_(*arguments.own),
          geometry_{arguments.ranks},
          block_(block),
          items_(arguments.in_table ? arguments.table : arguments.items) {}

    WEFT_DEVICE void run() {
        if (!begin()) return;
        if (first()) open();
        for (;;) {
            if (first()) block_.p2p = find();
            team_.barrier();
            if (block_.p2p < 0) break;
            copy_range(team_, block_.to, block_.from, block_.bytes);
            team_.barrier();
            if (first()) conclude(block_.p2p_channels[block_.p2p]);
        }
        if (first() && block_.p2p == MessageBlock::all_done) close();
    }

  private:
    using P2pChannel = MessageBlock::P2pChannel;
    enum class LaneState { ready, waits, ended, wrong };
    struct Wait {
        uint64_t begin;  // ns; 0: not timed yet
        uint64_t polls;  // that have reported the wait
        bool failed = false;
    };
    static constexpr size_t pull_bytes = size_t(1) << 20;  // per turn, so that other p2p channels get their turn
    static constexpr uint64_t patience_ns = 100'000;       // a wait this long does not end in the next microsecond

    WEFT_DEVICE bool first() const { return team_.thread == 0; }

    // As KernelBarrier::begin(): nothing moves after a failed kernel. In the failed kernel, blocks that have not begun
    // also leave, because a replay has the same launch number.
    WEFT_DEVICE bool begin() const { return !team_.any(load_relaxed(&own_.failed) != 0); }

    // Channels are dealt to the blocks in turn, channel 0 of all queues first, so that short messages have a block
    // each.
    WEFT_DEVICE void open() {
        for (int number = team_.block;; number += team_.blocks) {
            const int channel = number / a_.queue_count, queue = number % a_.queue_count;
            if (channel >= geometry_.channels()) break;
            const MessageQueue& q = a_.queues[queue];
            if (channel >= q.channels) continue;
            P2pChannel& p2p = block_.p2p_channels[p2p_count_++];
            p2p = {};
            p2p.queue = uint8_t(queue);
            p2p.channel = uint8_t(channel);
            p2p.slots = uint8_t(remote(p2p) ? message_slots : geometry_.slots());
            if (q.kind != MessageQueue::own) p2p.moved = p2p.wanted = moved_before(p2p);
        }
    }
    WEFT_DEVICE void close() const {
        for (int i = 0; i < p2p_count_; ++i) {
            const P2pChannel& p2p = block_.p2p_channels[i];
            const MessageQueue::Direction kind = a_.queues[p2p.queue].kind;
            if (kind != MessageQueue::own) moved_before(p2p) = p2p.moved;
            if (RemoteMessageArea* const far = remote(p2p); far && kind == MessageQueue::incoming)
                store_relaxed(&far->incoming.wanted, p2p.moved);  // no further slot is awaited
        }
    }

    // The next p2p channel that can move, or all_done or failed.
    WEFT_DEVICE int find() {
        uint32_t turns = 0;
        Wait wait{0, 0};
        for (;;) {
            bool open = false;
            for (int i = 0; i < p2p_count_; ++i) {
                const int at = next_;
                next_ = next_ + 1 < p2p_count_ ? next_ + 1 : 0;
                const LaneState look = lane_state(block_.p2p_channels[at]);
                if (look == LaneState::wrong) return MessageBlock::failed;
                if (look == LaneState::ready) return move_on(wait), at;
                open |= look == LaneState::waits;
            }
            if (!open) return move_on(wait), MessageBlock::all_done;
            if ((++turns & (turns_to_poll - 1)) == 0) {
                wait = poll(*this, turns, wait);
                if (wait.failed) return MessageBlock::failed;
            }
            pause();
        }
    }
    WEFT_DEVICE void move_on(const Wait& wait) const {
        if (wait.polls != 0) publish({});
    }

    struct Piece {
        uint64_t offset, bytes;
        bool there;  // this channel has a piece
    };
    WEFT_DEVICE Piece piece_of(const MessageItem& item, const P2pChannel& p2p) const {
        const uint64_t pieces = remote(p2p) ? 1 : geometry_.pieces(item.bytes, of_collective(caller_of(item.mark)));
        if (p2p.channel >= pieces) return {0, 0, false};
        // Multiples of a line, so that all pieces have the message's alignment.
        const uint64_t each = ((item.bytes + pieces - 1) / pieces + 127) / 128 * 128, offset = each * p2p.channel;
        const uint64_t left = offset < item.bytes ? item.bytes - offset : 0;
        return {offset, left < each ? left : each, p2p.channel == 0 || left != 0};
    }

    WEFT_DEVICE LaneState lane_state(P2pChannel& p2p) {
        const MessageQueue& queue = a_.queues[p2p.queue];
        Piece piece{};
        while (p2p.message < queue.count && !(piece = piece_of(item_of(p2p), p2p)).there) ++p2p.message;
        if (queue.kind == MessageQueue::own) return own_state(p2p, piece);
        return queue.kind == MessageQueue::outgoing ? outgoing_state(p2p, piece) : incoming_state(p2p, piece);
    }
    WEFT_DEVICE LaneState own_state(const P2pChannel& p2p, const Piece& piece) {
        if (p2p.message == a_.queues[p2p.queue].count) return LaneState::ended;
        const MessageItem& item = item_of(p2p);
        return copies(item.other + piece.offset, item.data + piece.offset, piece.bytes);
    }
    WEFT_DEVICE LaneState outgoing_state(const P2pChannel& p2p, const Piece& piece) {
        const uint32_t ahead = p2p.moved - load_acquire(&consumed(p2p));
        if (p2p.message == a_.queues[p2p.queue].count)
            return p2p.zero_copy && ahead != 0 ? LaneState::waits : LaneState::ended;
        if (ahead >= p2p.slots) return LaneState::waits;
        const MessageItem& item = item_of(p2p);
        if (item.other) return copies(nullptr, nullptr, 0);
        RemoteMessageArea* const far = remote(p2p);
        return copies(item.data + piece.offset + p2p.done,
                      far ? remote_slot(a_.remote.sent_slots, p2p) : slot(peer_area(p2p), a_.rank, p2p),
                      least(piece.bytes - p2p.done, message_slot_bytes));
    }
    WEFT_DEVICE LaneState incoming_state(P2pChannel& p2p, const Piece& piece) {
        if (p2p.message == a_.queues[p2p.queue].count) return LaneState::ended;
        const MessageItem& item = item_of(p2p);
        RemoteMessageArea* const far = remote(p2p);
        if (!p2p.pulled) {
            const MessageChannelState::MessageSlotHeader* const header =
                far ? nullptr : &state(p2p).headers[slot_of(p2p)];
            // pairs with conclude() or the proxy's give()
            const uint64_t word = load_acquire(far ? &far->incoming.filled[slot_of(p2p)] : &header->filled);
            if (epoch_of(word) != p2p.moved + 1) return far ? want(p2p, *far) : LaneState::waits;
            const uint64_t bytes = far ? far->incoming.wholes[slot_of(p2p)] : header->bytes;
            if (compared(uint32_t(word)) != compared(item.mark) || bytes != item.bytes) {
                report_mismatch(*this, int(&p2p - block_.p2p_channels), uint32_t(word), bytes);
                return LaneState::wrong;
            }
            if (!far) p2p.pulled = reinterpret_cast<const std::byte*>(header->address);
        }
        std::byte* const to = item.data + piece.offset + p2p.done;
        const uint64_t left = piece.bytes - p2p.done;
        if (p2p.pulled) return copies(p2p.pulled + p2p.done, to, least(left, pull_bytes));
        const std::byte* const from =
            far ? remote_slot(a_.remote.received_slots, p2p) : slot(a_.areas[a_.rank], peer(p2p), p2p);
        return copies(from, to, least(left, message_slot_bytes));
    }
    WEFT_DEVICE LaneState want(P2pChannel& p2p, RemoteMessageArea& far) const {
        if (p2p.wanted != p2p.moved + 1) store_relaxed(&far.incoming.wanted, p2p.wanted = p2p.moved + 1);
        return LaneState::waits;  // pairs with ProxyChannel::needed()
    }
    WEFT_DEVICE LaneState copies(const std::byte* from, std::byte* to, uint64_t bytes) {
        block_.from = from;
        block_.to = to;
        block_.bytes = bytes;
        return LaneState::ready;
    }

    // Called after all threads have copied.
    WEFT_DEVICE void conclude(P2pChannel& p2p) {
        const MessageItem& item = item_of(p2p);
        const Piece piece = piece_of(item, p2p);
        const MessageQueue::Direction kind = a_.queues[p2p.queue].kind;
        p2p.done += block_.bytes;
        RemoteMessageArea* const far = remote(p2p);
        if (kind == MessageQueue::outgoing && far) {
            const uint32_t slot = slot_of(p2p);
            far->outgoing.lengths[slot] = block_.bytes;
            far->outgoing.wholes[slot] = item.bytes;
            store_release(&far->outgoing.filled[slot], barrier_word(++p2p.moved, item.mark));  // pairs with take()
        } else if (kind == MessageQueue::outgoing) {
            MessageChannelState& theirs = state_of(peer_area(p2p), a_.rank, p2p);
            MessageChannelState::MessageSlotHeader& header = theirs.headers[slot_of(p2p)];
            ++p2p.moved;
            header.bytes = item.bytes;
            header.address = item.other ? reinterpret_cast<uint64_t>(item.other + piece.offset) : 0;
            store_release(&header.filled, barrier_word(p2p.moved, item.mark));
            if (item.other) p2p.done = piece.bytes;
            p2p.zero_copy |= item.other != nullptr;
        } else if (kind == MessageQueue::incoming && (!p2p.pulled || p2p.done == piece.bytes)) {
            uint32_t& consumed = far ? far->incoming.consumed : state_of(peer_area(p2p), a_.rank, p2p).consumed;
            store_release(&consumed, ++p2p.moved);
            p2p.pulled = nullptr;
        }
        if (p2p.done < piece.bytes) return;
        p2p.done = 0;
        ++p2p.message;
    }

    WEFT_DEVICE void publish(const RankBits& missing) const {
        RankBits& ranks = a_.block_waits[team_.block].ranks;
        store_relaxed(&ranks.low, missing.low);
        store_relaxed(&ranks.high, missing.high);
    }
    // Not every turn, as in KernelBarrier.
    static WEFT_DEVICE_COLD Wait poll(MessageKernel self, uint32_t turns, Wait wait) {
        return self.poll_here(turns, wait);
    }
    WEFT_DEVICE Wait poll_here(uint32_t turns, Wait wait) const {
        const Wait leaves{0, 0, true};
        if (load_relaxed(&own_.failed) != 0) return leaves;
        if ((turns & (turns_to_clock - 1)) != 0) return wait;
        const uint64_t now = clock_ns();
        if (wait.begin == 0) wait.begin = now;
        RankBits ranks;
        int missing = 0;
        for (int i = p2p_count_ - 1; i >= 0; --i) {
            const P2pChannel& p2p = block_.p2p_channels[i];
            const MessageQueue& queue = a_.queues[p2p.queue];
            // A zero-copy message ends when the peer has read it.
            if (p2p.message == queue.count && (!p2p.zero_copy || p2p.moved == load_relaxed(&consumed(p2p)))) continue;
            ranks.add(queue.peer);
            missing = i;
        }
        const bool aborted = load_relaxed(a_.abort) != 0;
        if (aborted || (a_.timeout_ns != 0 && now - wait.begin > a_.timeout_ns)) {
            const P2pChannel& p2p = block_.p2p_channels[missing];
            const bool sends = a_.queues[p2p.queue].kind == MessageQueue::outgoing;
            report_here(aborted ? KernelFailure::aborted : KernelFailure::timeout,
                        sends ? KernelWait::credit : KernelWait::message, p2p, 0, 0);
            return leaves;
        }
        if (now - wait.begin > patience_ns) {
            // If a rank is still missing two polls after it left, it left without its part of the message.
            publish(ranks);
            store_release(&a_.block_waits[team_.block].polls, ++wait.polls);
            sleep_a_little();
        }
        return wait;
    }
    static WEFT_DEVICE_COLD void report_mismatch(MessageKernel self, int p2p, uint32_t other_mark,
                                                 uint64_t other_bytes) {
        self.report_here(KernelFailure::mismatch, KernelWait::nothing, self.block_.p2p_channels[p2p], other_mark,
                         other_bytes);
    }
    // As in KernelBarrier.
    WEFT_DEVICE void report_here(KernelFailure failure, KernelWait waiting, const P2pChannel& p2p, uint32_t other_mark,
                                 uint64_t other_bytes) const {
        if (!claim(&own_.failed, uint32_t(failure) | (a_.launch & 0xffffff) << 8)) return;
        const MessageQueue& queue = a_.queues[p2p.queue];
        // Behind the last message, the peer may still be reading that one.
        const MessageItem& item = items_[queue.first + (p2p.message < queue.count ? p2p.message : queue.count - 1)];
        *a_.message_report = {true, queue.kind == MessageQueue::outgoing, p2p.done != 0, item.bytes, other_bytes, {}};
        FailureReport& report = *a_.report;
        report.waiting = waiting;
        report.rank = a_.rank;
        report.peer = queue.peer;
        report.block = uint32_t(team_.block);
        report.fingerprint = item.mark;
        report.other_fingerprint = other_mark;
        report.timeout_ns = a_.timeout_ns;
        store_release(reinterpret_cast<uint32_t*>(&report.failure), uint32_t(failure));
    }

    static WEFT_DEVICE uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }
    WEFT_DEVICE const MessageItem& item_of(const P2pChannel& p2p) const {
        return items_[a_.queues[p2p.queue].first + p2p.message];
    }
    WEFT_DEVICE int peer(const P2pChannel& p2p) const { return a_.queues[p2p.queue].peer; }
    WEFT_DEVICE std::byte* peer_area(const P2pChannel& p2p) const { return a_.areas[peer(p2p)]; }
    // Null: the peer's memory is reached.
    WEFT_DEVICE RemoteMessageArea* remote(const P2pChannel& p2p) const {
        const int other = peer(p2p);
        return a_.remote.ranks.has(other) ? reinterpret_cast<RemoteMessageArea*>(a_.areas[other]) : nullptr;
    }
    WEFT_DEVICE std::byte* remote_slot(std::byte* slots, const P2pChannel& p2p) const {
        const RankBits before = a_.remote.ranks.below(peer(p2p));
        const int index = count_bits(before.low) + count_bits(before.high);
        return remote_message_slots(slots, size_t(index)) + slot_of(p2p) * message_slot_bytes;
    }
    // Slots moved by earlier kernels.
    WEFT_DEVICE uint32_t& moved_before(const P2pChannel& p2p) const {
        return a_.queues[p2p.queue].kind == MessageQueue::outgoing ? state(p2p).sent : state(p2p).received;
    }
    // Outgoing slots that the peer has consumed.
    WEFT_DEVICE const uint32_t& consumed(const P2pChannel& p2p) const {
        const RemoteMessageArea* const far = remote(p2p);
        return far ? far->outgoing.consumed : state(p2p).consumed;
    }
    static WEFT_DEVICE uint32_t slot_of(const P2pChannel& p2p) { return p2p.moved & (p2p.slots - 1u); }
    // In a rank's area: its state with rank `with` on the p2p channel's channel.
    WEFT_DEVICE MessageChannelState& state_of(std::byte* area, int with, const P2pChannel& p2p) const {
        return reinterpret_cast<MessageChannelState*>(area)[geometry_.p2p(with, p2p.channel)];
    }
    WEFT_DEVICE MessageChannelState& state(const P2pChannel& p2p) const {
        return state_of(a_.areas[a_.rank], peer(p2p), p2p);
    }
    WEFT_DEVICE std::byte* slot(std::byte* area, int with, const P2pChannel& p2p) const {
        return area + geometry_.state_bytes() +
               (geometry_.p2p(with, p2p.channel) * p2p.slots + slot_of(p2p)) * message_slot_bytes;
    }

    const Team team_;
    const MessageArguments& a_;
    RankFlags& own_;
    const MessageGeometry geometry_;
    MessageBlock& block_;
    const MessageItem* items_;
    int p2p_count_ = 0, next_ = 0;  // used by the first thread
};

// Items that do not fit into the arguments are written to the table by earlier kernels.
WEFT_DEVICE void messages(const Team& team, const MessageArguments& a, MessageBlock& block) {
    if (a.does == MessageArguments::move) {
        MessageKernel(team, a, block).run();
        return report_end(team, a);
    }
    if (a.does == MessageArguments::count) return CountReader(team, a).run();
    for (int i = team.thread; i < a.item_count; i += team.threads) a.table[a.noted + i] = a.items[i];
}

}  // namespace weft::internal::cuda
