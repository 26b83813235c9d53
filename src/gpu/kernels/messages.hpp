// messages.hpp: any number of messages between ranks, all side by side, in one kernel: what p2p/exchange.hpp does
// on the host. Each block has some lanes, one of them as a rule, and moves a slot's worth of whichever can move, so any
// number of blocks comes to an end whatever the order in which peers send and receive. The first thread looks and
// keeps the books; all threads copy.
//
// Sending: a slot is free while `sent` is less than message_slots ahead of `consumed`; the piece goes in, then its
// header, released. Or the header says where the peer finds the piece, which then is the peer's to read until it has
// consumed the slot. Receiving: the header of the next number is there; its mark and length are compared with what is
// wanted before a byte is copied. With a peer on another host both go by memory of this rank's, on one channel, and the
// proxy does the peer's part (traffic.hpp).
#pragma once
#include "src/gpu/kernels/meeting.hpp"
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/gpu/kernels/message_counts.hpp"
#include "src/gpu/kernels/reduce.hpp"
#include "src/p2p/message_mark.hpp"

namespace weft::internal::cuda {

// A block's own, in its shared memory.
struct MessageBlock {
    struct Lane {
        uint64_t done;            // bytes of the piece
        const std::byte* pulled;  // where the sender has the piece that is being received; null: in slots
        uint32_t moved;           // slots, ever
        uint16_t message;         // of the queue
        uint8_t queue, channel;
        bool zero_copy;        // the peer may be reading our memory
        uint32_t wanted;  // number of the last slot that the proxy knows we wait for
    };
    Lane lanes[message_lanes_max];
    // What is to be copied next, and for which lane.
    enum : int { all_done = -1, failed = -2 };
    int lane;
    const std::byte* from;
    std::byte* to;
    size_t bytes;
};

class MessageMachine {
  public:
    WEFT_DEVICE MessageMachine(const Team& team, const MessageArguments& arguments, MessageBlock& block)
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
            if (first()) block_.lane = find();
            team_.barrier();
            if (block_.lane < 0) break;
            copy_range(team_, block_.to, block_.from, block_.bytes);
            team_.barrier();
            if (first()) conclude(block_.lanes[block_.lane]);
        }
        if (first() && block_.lane == MessageBlock::all_done) close();
    }

  private:
    using Lane = MessageBlock::Lane;
    enum class Look { ready, waits, ended, wrong };
    static constexpr size_t pull_bytes = size_t(1) << 20;  // at a time: then other lanes have their turn
    static constexpr uint64_t patience_ns = 100'000;       // a wait that long will not end in the next microsecond

    WEFT_DEVICE bool first() const { return team_.thread == 0; }

    // As Meeting::begin(): nothing moves behind a kernel that has failed, or in the blocks of that one which have not
    // begun: a replay has the same number.
    WEFT_DEVICE bool begin() const { return !team_.any(load_relaxed(&own_.failed) != 0); }

    // Lanes go round the blocks, channel after channel, so that short messages have one each.
    WEFT_DEVICE void open() {
        for (int number = team_.block;; number += team_.blocks) {
            const int channel = number / a_.queue_count, queue = number % a_.queue_count;
            if (channel >= geometry_.channels()) break;
            const MessageQueue& q = a_.queues[queue];
            if (channel >= q.channels) continue;
            Lane& lane = block_.lanes[lanes_++];
            lane = {};
            lane.queue = uint8_t(queue);
            lane.channel = uint8_t(channel);
            if (q.kind != MessageQueue::own) lane.moved = lane.wanted = moved_before(lane);
        }
    }
    WEFT_DEVICE void close() const {
        for (int i = 0; i < lanes_; ++i) {
            const Lane& lane = block_.lanes[i];
            const MessageQueue::Kind kind = a_.queues[lane.queue].kind;
            if (kind != MessageQueue::own) moved_before(lane) = lane.moved;
            if (MessageAbroad* const far = abroad(lane); far && kind == MessageQueue::incoming)
                store_relaxed(&far->incoming.wanted, lane.moved);  // no more
        }
    }

    // The next lane that can move, or what has become of all.
    WEFT_DEVICE int find() {
        uint32_t turns = 0;
        uint64_t begin = 0, looks = 0;
        for (;;) {
            bool open = false;
            for (int i = 0; i < lanes_; ++i) {
                const int at = next_;
                next_ = next_ + 1 < lanes_ ? next_ + 1 : 0;
                const Look look = look_at(block_.lanes[at]);
                if (look == Look::wrong) return MessageBlock::failed;
                if (look == Look::ready) return move_on(looks), at;
                open |= look == Look::waits;
            }
            if (!open) return move_on(looks), MessageBlock::all_done;
            if ((++turns & (turns_to_look - 1)) == 0 && !look_around(turns, begin, looks)) return MessageBlock::failed;
            pause();
        }
    }
    WEFT_DEVICE void move_on(uint64_t looks) const {
        if (looks != 0) store_relaxed(&a_.stuck[team_.block].ranks, uint64_t(0));
    }

    struct Piece {
        uint64_t offset, bytes;
        bool there;  // of this channel
    };
    WEFT_DEVICE Piece piece_of(const MessageItem& item, const Lane& lane) const {
        const uint64_t pieces = abroad(lane) ? 1 : geometry_.pieces(item.bytes);
        if (lane.channel >= pieces) return {0, 0, false};
        // Whole lines, so that all begin as the message does.
        const uint64_t each = ((item.bytes + pieces - 1) / pieces + 127) / 128 * 128, offset = each * lane.channel;
        const uint64_t left = offset < item.bytes ? item.bytes - offset : 0;
        return {offset, left < each ? left : each, lane.channel == 0 || left != 0};
    }

    WEFT_DEVICE Look look_at(Lane& lane) {
        const MessageQueue& queue = a_.queues[lane.queue];
        Piece piece{};
        while (lane.message < queue.count && !(piece = piece_of(item_of(lane), lane)).there) ++lane.message;
        if (queue.kind == MessageQueue::own) return look_at_own(lane, piece);
        return queue.kind == MessageQueue::outgoing ? look_at_outgoing(lane, piece) : look_at_incoming(lane, piece);
    }
    WEFT_DEVICE Look look_at_own(const Lane& lane, const Piece& piece) {
        if (lane.message == a_.queues[lane.queue].count) return Look::ended;
        const MessageItem& item = item_of(lane);
        return copies(item.other + piece.offset, item.data + piece.offset, piece.bytes);
    }
    WEFT_DEVICE Look look_at_outgoing(const Lane& lane, const Piece& piece) {
        const uint32_t ahead = lane.moved - load_acquire(&consumed(lane));
        if (lane.message == a_.queues[lane.queue].count) return lane.zero_copy && ahead != 0 ? Look::waits : Look::ended;
        if (ahead >= message_slots) return Look::waits;
        const MessageItem& item = item_of(lane);
        if (item.other) return copies(nullptr, nullptr, 0);
        MessageAbroad* const far = abroad(lane);
        return copies(item.data + piece.offset + lane.done,
                      far ? far->sent_slots[slot_of(lane)] : slot(peer_area(lane), a_.rank, lane),
                      least(piece.bytes - lane.done, message_slot_bytes));
    }
    WEFT_DEVICE Look look_at_incoming(Lane& lane, const Piece& piece) {
        if (lane.message == a_.queues[lane.queue].count) return Look::ended;
        const MessageItem& item = item_of(lane);
        MessageAbroad* const far = abroad(lane);
        if (!lane.pulled) {
            const MessageWords::Header* const header = far ? nullptr : &words(lane).headers[slot_of(lane)];
            // Pairs with conclude() or Traffic::give().
            const uint64_t word = load_acquire(far ? &far->incoming.filled[slot_of(lane)] : &header->filled);
            if (epoch_of(word) != lane.moved + 1) return far ? want(lane, *far) : Look::waits;
            const uint64_t bytes = far ? far->incoming.wholes[slot_of(lane)] : header->bytes;
            if (compared(uint32_t(word)) != compared(item.mark) || bytes != item.bytes)
                return fail(Failure::mismatch, Waiting::nothing, lane, uint32_t(word), bytes), Look::wrong;
            if (!far) lane.pulled = reinterpret_cast<const std::byte*>(header->address);
        }
        std::byte* const to = item.data + piece.offset + lane.done;
        const uint64_t left = piece.bytes - lane.done;
        if (lane.pulled) return copies(lane.pulled + lane.done, to, least(left, pull_bytes));
        const std::byte* const from =
            far ? far->received_slots[slot_of(lane)] : slot(a_.areas[a_.rank], peer(lane), lane);
        return copies(from, to, least(left, message_slot_bytes));
    }
    WEFT_DEVICE Look want(Lane& lane, MessageAbroad& far) const {
        if (lane.wanted != lane.moved + 1) store_relaxed(&far.incoming.wanted, lane.wanted = lane.moved + 1);
        return Look::waits;  // pairs with Lane::needed()
    }
    WEFT_DEVICE Look copies(const std::byte* from, std::byte* to, uint64_t bytes) {
        block_.from = from;
        block_.to = to;
        block_.bytes = bytes;
        return Look::ready;
    }

    // What was to be copied has been, by all threads.
    WEFT_DEVICE void conclude(Lane& lane) {
        const MessageItem& item = item_of(lane);
        const Piece piece = piece_of(item, lane);
        const MessageQueue::Kind kind = a_.queues[lane.queue].kind;
        lane.done += block_.bytes;
        MessageAbroad* const far = abroad(lane);
        if (kind == MessageQueue::outgoing && far) {
            const uint32_t slot = slot_of(lane);
            far->outgoing.lengths[slot] = block_.bytes;
            far->outgoing.wholes[slot] = item.bytes;
            store_release(&far->outgoing.filled[slot], barrier_word(++lane.moved, item.mark));  // pairs with take()
        } else if (kind == MessageQueue::outgoing) {
            MessageWords& theirs = words_of(peer_area(lane), a_.rank, lane);
            MessageWords::Header& header = theirs.headers[slot_of(lane)];
            ++lane.moved;
            header.bytes = item.bytes;
            header.address = item.other ? reinterpret_cast<uint64_t>(item.other + piece.offset) : 0;
            store_release(&header.filled, barrier_word(lane.moved, item.mark));
            if (item.other) lane.done = piece.bytes;
            lane.zero_copy |= item.other != nullptr;
        } else if (kind == MessageQueue::incoming && (!lane.pulled || lane.done == piece.bytes)) {
            uint32_t& consumed = far ? far->incoming.consumed : words_of(peer_area(lane), a_.rank, lane).consumed;
            store_release(&consumed, ++lane.moved);
            lane.pulled = nullptr;
        }
        if (lane.done < piece.bytes) return;
        lane.done = 0;
        ++lane.message;
    }

    // Not every turn; as Meeting does. False: leave.
    WEFT_DEVICE_COLD bool look_around(uint32_t turns, uint64_t& begin, uint64_t& looks) {
        if (load_relaxed(&own_.failed) != 0) return false;
        if ((turns & (turns_to_clock - 1)) != 0) return true;
        const uint64_t now = clock_ns();
        if (begin == 0) begin = now;
        uint64_t ranks = 0;
        int missing = 0;
        for (int i = lanes_ - 1; i >= 0; --i) {
            const Lane& lane = block_.lanes[i];
            const MessageQueue& queue = a_.queues[lane.queue];
            // What was lent is waited for until it has been read.
            if (lane.message == queue.count && (!lane.zero_copy || lane.moved == load_relaxed(&consumed(lane)))) continue;
            ranks |= uint64_t(1) << unsigned(queue.peer);
            missing = i;
        }
        const Lane& lane = block_.lanes[missing];
        const bool sends = a_.queues[lane.queue].kind == MessageQueue::outgoing;
        const Waiting waiting = sends ? Waiting::credit : Waiting::message;
        if (load_relaxed(a_.abort) != 0) return fail(Failure::aborted, waiting, lane, 0, 0), false;
        if (a_.timeout_ns != 0 && now - begin > a_.timeout_ns)
            return fail(Failure::timeout, waiting, lane, 0, 0), false;
        if (now - begin > patience_ns) {
            // A rank that has left by the look before last, and is still missing, has left without its part.
            MessageStuck& stuck = a_.stuck[team_.block];
            store_relaxed(&stuck.ranks, ranks);
            store_release(&stuck.looks, ++looks);
            sleep_a_little();
        }
        return true;
    }
    // As Meeting::fail().
    WEFT_DEVICE_COLD void fail(Failure failure, Waiting waiting, const Lane& lane, uint32_t other_mark,
                               uint64_t other_bytes) const {
        if (!claim(&own_.failed, uint32_t(failure) | (a_.launch & 0xffffff) << 8)) return;
        const MessageQueue& queue = a_.queues[lane.queue];
        // What the peer may still be reading is the last one's.
        const MessageItem& item = items_[queue.first + (lane.message < queue.count ? lane.message : queue.count - 1)];
        *a_.message_report = {true, queue.kind == MessageQueue::outgoing, lane.done != 0, item.bytes, other_bytes, {}};
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
    WEFT_DEVICE const MessageItem& item_of(const Lane& lane) const {
        return items_[a_.queues[lane.queue].first + lane.message];
    }
    WEFT_DEVICE int peer(const Lane& lane) const { return a_.queues[lane.queue].peer; }
    WEFT_DEVICE std::byte* peer_area(const Lane& lane) const { return a_.areas[peer(lane)]; }
    // Null: on this host.
    WEFT_DEVICE MessageAbroad* abroad(const Lane& lane) const {
        const int other = peer(lane);
        return (a_.abroad >> unsigned(other) & 1) != 0 ? reinterpret_cast<MessageAbroad*>(a_.areas[other]) : nullptr;
    }
    // By the kernels before.
    WEFT_DEVICE uint32_t& moved_before(const Lane& lane) const {
        return a_.queues[lane.queue].kind == MessageQueue::outgoing ? words(lane).sent : words(lane).received;
    }
    // Of what goes, by the peer.
    WEFT_DEVICE const uint32_t& consumed(const Lane& lane) const {
        const MessageAbroad* const far = abroad(lane);
        return far ? far->outgoing.consumed : words(lane).consumed;
    }
    static WEFT_DEVICE uint32_t slot_of(const Lane& lane) { return lane.moved % message_slots; }
    // In the area of a rank, what it shares with `with` on the lane's channel.
    WEFT_DEVICE MessageWords& words_of(std::byte* area, int with, const Lane& lane) const {
        return reinterpret_cast<MessageWords*>(area)[geometry_.lane(with, lane.channel)];
    }
    WEFT_DEVICE MessageWords& words(const Lane& lane) const { return words_of(a_.areas[a_.rank], peer(lane), lane); }
    WEFT_DEVICE std::byte* slot(std::byte* area, int with, const Lane& lane) const {
        return area + geometry_.words_bytes() +
               (geometry_.lane(with, lane.channel) * message_slots + slot_of(lane)) * message_slot_bytes;
    }

    const Team& team_;
    const MessageArguments& a_;
    RankWords& own_;
    const MessageGeometry geometry_;
    MessageBlock& block_;
    const MessageItem* items_;
    int lanes_ = 0, next_ = 0;  // the first thread's
};

// More items than fit into the arguments come in kernels that only write them down, before the one that moves.
WEFT_DEVICE void messages(const Team& team, const MessageArguments& a, MessageBlock& block) {
    if (a.does == MessageArguments::move) {
        MessageMachine(team, a, block).run();
        // As steps().
        if (a.ended && team.thread == 0) store_release(&a.ended[team.block], a.launch);
        return;
    }
    if (a.does == MessageArguments::count) return CountReader(team, a).run();
    for (int i = team.thread; i < a.item_count; i += team.threads) a.table[a.noted + i] = a.items[i];
}

}  // namespace weft::internal::cuda
