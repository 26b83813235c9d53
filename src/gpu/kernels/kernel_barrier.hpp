// kernel_barrier.hpp: epochs, barriers and waits between one block of a rank's kernel and the same block of its peers.
// A wait ends on success, abort, failure of another block, a mismatched call of a peer, or at the deadline. Then a
// report names the waiting rank and the late peer.
// A block's epoch rises by the same amount on all ranks, because the operation determines the data that moves. So if a
// peer's barrier word has an epoch of this operation, it has this operation's fingerprint, or the call is mismatched. A
// peer that is ahead has passed a barrier with this rank, and has compared there.
#pragma once
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"

namespace weft::internal::cuda {

// `only`: the only source or destination of a fused body; -1: all ranks.
constexpr bool is_one_of(int only, int rank) { return only < 0 || only == rank; }

class KernelBarrier {
  public:
    WEFT_DEVICE KernelBarrier(const Team& team, const KernelArguments& arguments)
        : KernelBarrier(team, arguments, arguments.own->epoch[team.block]) {}
    // epoch: RankFlags::epoch of this block, which the kernel has loaded.
    WEFT_DEVICE KernelBarrier(const Team& team, const KernelArguments& arguments, uint32_t epoch)
        : team_(team), arguments_(arguments), own_(*arguments.own), epoch_(epoch) {
        begin_operation(arguments.fingerprint);
    }
    // Starts the next operation of a kernel that carries out several.
    WEFT_DEVICE void begin_operation(uint32_t fingerprint) {
        fingerprint_ = fingerprint;
        first_epoch_ = epoch_ + 1;
    }

    // No operation has 2^30 epochs, so epochs are restarted between operations only.
    static constexpr uint32_t last_epoch = 0xc0000000;
    WEFT_DEVICE uint32_t epoch() const { return epoch_; }
    WEFT_DEVICE void at_tile(uint64_t tile) { tile_ = uint32_t(tile); }

    // The whole team calls the functions below. All return false if this rank's kernel has failed; the block then
    // leaves.

    // Called first. A kernel enqueued behind a failed one must not run: peers would take its epochs for the failed
    // kernel's. A graph's next replay has the same launch number as the failed one.
    // After a mismatch, the blocks of that kernel and its next replay go on: peers must receive this rank's fingerprint
    // and compare it.
    WEFT_DEVICE bool begin() { return begin(failure()); }
    // The word of an earlier failure, which a kernel may load before it computes something else.
    WEFT_DEVICE uint32_t failure() const { return load_relaxed(&own_.failed); }
    WEFT_DEVICE bool begin(uint32_t failed) {
        const bool heard = arguments_.domain && KernelFailure(failed & 0xff) == KernelFailure::mismatch &&
                           failed >> 8 == (arguments_.launch & 0xffffff) && load_relaxed(arguments_.abort) == 0;
        if (team_.any(failed != 0 && !heard)) return false;
        return epoch_ < last_epoch || restart_epochs();
    }
    // Starts the next epoch and announces it to all peers, without a wait. The team has passed a barrier since the last
    // epoch. Peers that await a barrier's epoch see all earlier work of this rank's stream.
    WEFT_DEVICE void announce() {
        ++epoch_;
        if (arguments_.domain) publish(arguments_.bytes == 0);
    }
    // Waits until all peers have announced this epoch. Their earlier writes are visible afterwards.
    WEFT_DEVICE bool await(KernelWait waiting) const {
        bool failed = false;
        for (int peer = team_.thread; arguments_.domain && peer < arguments_.ranks; peer += team_.threads)
            if (peer != arguments_.rank) failed |= !await_word(&own_.barrier[team_.block][peer], epoch_, peer, waiting);
        return !team_.any(failed);
    }
    // The peers that leave this barrier see all writes of this team, in any memory. Not releasing: only the earlier work
    // of this rank's stream.
    WEFT_DEVICE bool sync(KernelWait waiting, bool releases = true) {
        team_.barrier();
        ++epoch_;
        if (arguments_.domain) publish(releases || arguments_.bytes == 0);
        return await(waiting);
    }
    // Announces that all blocks of this rank have ended their work, and waits for all peers to do the same. Only the last
    // block does that. The others leave at once, as the kernel ends with its last block. The last block's release covers
    // the accesses of the others, because count_up() orders those before it.
    WEFT_DEVICE bool depart() {
        team_.barrier();
        bool last = false;
        if (team_.thread == 0) last = count_up(&own_.finished) + 1 == uint32_t(team_.blocks);
        if (!team_.any(last)) return true;
        const uint32_t number = own_.departures + 1;
        bool failed = false;
        for (int peer = team_.thread; arguments_.domain && peer < arguments_.ranks; peer += team_.threads)
            if (peer != arguments_.rank)  // pairs with the load below
                store_release(&arguments_.flags[peer]->departed[arguments_.rank], barrier_word(number, fingerprint_));
        for (int peer = team_.thread; arguments_.domain && peer < arguments_.ranks; peer += team_.threads)
            if (peer != arguments_.rank) failed |= !await_word(&own_.departed[peer], number, peer, KernelWait::exit);
        if (team_.any(failed)) return false;
        if (team_.thread == 0) {
            own_.departures = number;
            store_relaxed(&own_.finished, 0u);  // for the next kernel
        }
        return true;
    }
    // At the end of an operation that has not failed.
    WEFT_DEVICE void keep_epoch() {
        if (team_.thread == 0) own_.epoch[team_.block] = epoch_;
    }
    // The same for a body that reports its end. A call of report_end() behind all bodies would cost registers.
    WEFT_DEVICE void leave() {
        if (arguments_.ended) team_.barrier();
        if (team_.thread == 0) {
            own_.epoch[team_.block] = epoch_;
            if (arguments_.ended) store_release(&arguments_.ended[team_.block], arguments_.launch);
        }
    }

    // For a single thread: polls `ready` until it returns true. `peer` returns the missing rank. False: leave.
    template <class Peer, class Ready>
    WEFT_DEVICE bool spin(KernelWait waiting, Peer&& peer, Ready&& ready) const {
        uint32_t turns = 0;
        uint64_t begin = not_timed;
        while (!ready()) {
            if ((++turns & (turns_to_poll - 1)) == 0) {
                begin = poll(*this, waiting, peer(), turns, begin);
                if (begin == gives_up) return false;
            }
            pause();
        }
        return true;
    }

    // Only the first failure of the rank is reported; all its blocks leave.
    WEFT_DEVICE void fail(KernelFailure failure, KernelWait waiting, int peer, uint32_t other_fingerprint) const {
        report(*this, failure, waiting, peer, other_fingerprint);
    }

  private:
    static constexpr uint64_t patience_ns = 100'000;  // a wait this long does not end in the next microsecond
    // A late third rank may keep block 0 from reaching the mismatched call for this long.
    static constexpr uint64_t first_block_patience_ns = 10'000'000'000;
    // In place of the time at which a wait began.
    static constexpr uint64_t gives_up = 0, not_timed = 1;

    static WEFT_DEVICE_COLD void report(KernelBarrier self, KernelFailure failure, KernelWait waiting, int peer,
                                        uint32_t other_fingerprint) {
        self.report_here(failure, waiting, peer, other_fingerprint);
    }
    WEFT_DEVICE void report_here(KernelFailure failure, KernelWait waiting, int peer,
                                 uint32_t other_fingerprint) const {
        if (!claim(&own_.failed, uint32_t(failure) | (arguments_.launch & 0xffffff) << 8)) return;
        FailureReport& report = *arguments_.report;
        report.waiting = waiting;
        report.rank = arguments_.rank;
        report.peer = peer;
        report.block = uint32_t(team_.block);
        report.epoch = epoch_;
        report.fingerprint = fingerprint_;
        report.other_fingerprint = other_fingerprint;
        report.tile = tile_;
        report.timeout_ns = arguments_.timeout_ns;
        store_release(reinterpret_cast<uint32_t*>(&report.failure), uint32_t(failure));
    }

    // Not every turn: the flags lie outside the multiprocessor, and the abort flag outside the device. Returns when the
    // wait began, or gives_up.
    static WEFT_DEVICE_COLD uint64_t poll(KernelBarrier self, KernelWait waiting, int peer, uint32_t turns,
                                          uint64_t begin) {
        const KernelArguments& a = self.arguments_;
        if (load_relaxed(&self.own_.failed) != 0) return gives_up;
        if ((turns & (turns_to_clock - 1)) != 0) return begin;
        const uint64_t now = clock_ns();
        if (begin == not_timed) begin = now;
        KernelFailure failure = KernelFailure::none;
        uint32_t other_fingerprint = 0;
        if (load_relaxed(a.abort) != 0) {
            failure = KernelFailure::aborted;
        } else if (const int other = a.domain ? self.mismatched_peer(other_fingerprint) : -1; other >= 0) {
            if (self.team_.block != 0) self.await_first_block();
            failure = KernelFailure::mismatch;
            waiting = KernelWait::nothing;
            peer = other;
        } else if (a.timeout_ns != 0 && now - begin > a.timeout_ns) {
            failure = KernelFailure::timeout;
            // A rank that has not begun keeps others from sending what this thread waits for. One that stops behind its last
            // announcement is not found.
            if (const int late = a.domain ? self.late_peer() : -1; late >= 0) peer = late;
        }
        if (failure != KernelFailure::none) {
            self.report_here(failure, waiting, peer, other_fingerprint);
            return gives_up;
        }
        if (now - begin > patience_ns) sleep_a_little();
        return begin;
    }
    // A peer that has entered an epoch of this operation with a different operation; -1: none.
    WEFT_DEVICE int mismatched_peer(uint32_t& other_fingerprint) const {
        for (int peer = 0; peer < arguments_.ranks; ++peer) {
            const uint64_t word = peer == arguments_.rank ? 0 : load_relaxed(&own_.barrier[team_.block][peer]);
            if (peer == arguments_.rank || same_operation(word)) continue;
            other_fingerprint = uint32_t(word);
            return peer;
        }
        return -1;
    }
    // A peer that has not announced this epoch; -1: none.
    WEFT_DEVICE int late_peer() const {
        for (int peer = 0; peer < arguments_.ranks; ++peer)
            if (peer != arguments_.rank &&
                int32_t(epoch_of(load_relaxed(&own_.barrier[team_.block][peer])) - epoch_) < 0)
                return peer;
        return -1;
    }
    WEFT_DEVICE bool same_operation(uint64_t word) const {
        return uint32_t(word) == fingerprint_ || int32_t(epoch_of(word) - first_epoch_) < 0 ||
               int32_t(epoch_of(word) - epoch_) > 0;
    }
    static WEFT_DEVICE_COLD void report_mismatch(KernelBarrier self, int peer, uint32_t other_fingerprint) {
        if (self.team_.block != 0) self.await_first_block();
        self.report_here(KernelFailure::mismatch, KernelWait::nothing, peer, other_fingerprint);
    }
    // Blocks of a kernel with several calls do not wait for each other, and mismatched calls may have fewer blocks. So
    // this block may have seen a later call. Block 0 takes part in all calls and reaches the first mismatch.
    WEFT_DEVICE void await_first_block() const {
        for (const uint64_t begin = clock_ns(); load_relaxed(&own_.failed) == 0 &&
                                                load_relaxed(arguments_.abort) == 0 &&
                                                clock_ns() - begin < first_block_patience_ns;)
            sleep_a_little();
    }
    // Until the peer has written this number, or a later one, into the word.
    WEFT_DEVICE bool await_word(const uint64_t* word, uint32_t number, int peer, KernelWait waiting) const {
        uint64_t seen = 0;
        const bool came = spin(
            waiting, [&] { return peer; },
            [&] {
                seen = load_acquire(word);  // pairs with publish() or depart()
                return int32_t(epoch_of(seen) - number) >= 0;
            });
        // A peer that is ahead has compared its call with this rank's.
        if (!came || epoch_of(seen) != number || uint32_t(seen) == fingerprint_) return came;
        report_mismatch(*this, peer, uint32_t(seen));
        return false;
    }
    // A credit is enough for packets, which prove their own arrival, and for data with flags of its own.
    WEFT_DEVICE void publish(bool release) const {
        for (int peer = team_.thread; peer < arguments_.ranks; peer += team_.threads) {
            if (peer == arguments_.rank) continue;
            uint64_t* word = &arguments_.flags[peer]->barrier[team_.block][arguments_.rank];
            const uint64_t value = barrier_word(epoch_, fingerprint_);
            if (release)
                store_release(word, value);
            else
                store_credit(word, value);
        }
    }
    // Before an operation whose epochs might wrap round: old packets must not look like new ones. No packet has epoch 0,
    // and no rank sends into the memory that is cleared between epochs 0 and 1. All ranks do it before the same
    // operation, and a peer that has not begun is less than 2^31 epochs behind.
    WEFT_DEVICE bool restart_epochs() {
        const KernelArguments& a = arguments_;
        epoch_ = first_epoch_ = 0;
        if (a.domain) publish(false);
        if (!await(KernelWait::entry)) return false;
        if (a.domain && a.packets[a.rank] && team_.block < packet_blocks) {
            for (uint32_t parity = 0; parity < 2; ++parity) {
                PacketLine* const lines = a.packets[a.rank] + packet_index(a.ranks, parity, team_.block, 0, 0);
                const int count = a.ranks * lines_per_sender(a.ranks);
                for (int i = team_.thread; i < count; i += team_.threads) lines[i] = {};
            }
        }
        for (int i = team_.thread; i < 2 * ranks_max; i += team_.threads) own_.exports[team_.block][i / 2][i % 2] = {};
        return sync(KernelWait::entry);
    }

    const Team team_;
    const KernelArguments& arguments_;
    RankFlags& own_;
    uint32_t epoch_, first_epoch_, fingerprint_;
    uint32_t tile_ = 0;  // for reports; 64 bits cost the peer kernels a register too many
};

}  // namespace weft::internal::cuda
