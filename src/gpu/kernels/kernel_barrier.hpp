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
        : team_(team), arguments_(arguments), own_(*arguments.own) {
        epoch_ = own_.epoch[team.block];
        begin_operation(arguments.fingerprint);
    }
    // Starts the next operation of a kernel that carries out several.
    WEFT_DEVICE void begin_operation(uint32_t fingerprint) {
        fingerprint_ = fingerprint;
        first_epoch_ = epoch_ + 1;
    }

    WEFT_DEVICE uint32_t epoch() const { return epoch_; }
    WEFT_DEVICE void at_tile(uint64_t tile) { tile_ = tile; }

    // The whole team calls the functions below. All return false if this rank's kernel has failed; the block then
    // leaves.

    // Called first. A kernel enqueued behind a failed one must not run: peers would take its epochs for the failed
    // kernel's. A graph's next replay has the same launch number as the failed one.
    // After a mismatch, the blocks of that kernel and its next replay go on: peers must receive this rank's fingerprint
    // and compare it.
    WEFT_DEVICE bool begin() {
        const uint32_t failed = load_relaxed(&own_.failed);
        const bool heard = arguments_.domain && KernelFailure(failed & 0xff) == KernelFailure::mismatch &&
                           failed >> 8 == (arguments_.launch & 0xffffff) && load_relaxed(arguments_.abort) == 0;
        return !team_.any(failed != 0 && !heard);
    }
    // Starts the next epoch and announces it to all peers, without a wait (except every 2^32 epochs). The team has
    // passed a barrier since the last epoch. Peers that await a barrier's epoch see all earlier work of this rank's
    // stream.
    WEFT_DEVICE bool announce() {
        ++epoch_;
        if (epoch_ == 0 && !restart_epochs()) return false;
        if (arguments_.domain) publish(arguments_.bytes == 0);
        return true;
    }
    // Waits until all peers have announced this epoch. Their earlier writes are visible afterwards.
    WEFT_DEVICE bool await(KernelWait waiting) {
        bool failed = false;
        for (int peer = team_.thread; arguments_.domain && peer < arguments_.ranks; peer += team_.threads)
            if (peer != arguments_.rank) failed |= !await_peer(peer, waiting);
        return !team_.any(failed);
    }
    // The peers that leave this barrier see all writes of this team, in any memory.
    WEFT_DEVICE bool sync(KernelWait waiting) {
        team_.barrier();
        ++epoch_;
        if (epoch_ == 0 && !restart_epochs()) return false;
        if (arguments_.domain) publish(true);
        return await(waiting);
    }
    // At the end of an operation that has not failed.
    WEFT_DEVICE void leave() {
        if (team_.thread == 0) own_.epoch[team_.block] = epoch_;
    }

    // For a single thread: polls `ready` until it returns true. `peer` returns the missing rank. False: leave.
    template <class Peer, class Ready>
    WEFT_DEVICE bool spin(KernelWait waiting, Peer&& peer, Ready&& ready) {
        uint32_t turns = 0;
        uint64_t begin = 0;
        while (!ready()) {
            if ((++turns & (turns_to_poll - 1)) == 0 && !poll(waiting, peer(), turns, begin)) return false;
            pause();
        }
        return true;
    }

    // Only the first failure of the rank is reported; all its blocks leave.
    WEFT_DEVICE_COLD void fail(KernelFailure failure, KernelWait waiting, int peer, uint32_t other_fingerprint) {
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

  private:
    static constexpr uint64_t patience_ns = 100'000;  // a wait this long does not end in the next microsecond
    // A late third rank may keep block 0 from reaching the mismatched call for this long.
    static constexpr uint64_t first_block_patience_ns = 1'000'000'000;

    // Not every turn: the flags lie outside the multiprocessor, and the abort flag outside the device.
    WEFT_DEVICE_COLD bool poll(KernelWait waiting, int peer, uint32_t turns, uint64_t& begin) {
        if (load_relaxed(&own_.failed) != 0) return false;
        if ((turns & (turns_to_clock - 1)) != 0) return true;
        const uint64_t now = clock_ns();
        if (begin == 0) begin = now;
        if (load_relaxed(arguments_.abort) != 0) return fail(KernelFailure::aborted, waiting, peer, 0), false;
        if (arguments_.domain && !same_operation()) return false;
        if (arguments_.timeout_ns != 0 && now - begin > arguments_.timeout_ns)
            return fail(KernelFailure::timeout, waiting, peer, 0), false;
        if (now - begin > patience_ns) sleep_a_little();
        return true;
    }
    // Whether no peer has entered an epoch of this operation with a different operation.
    WEFT_DEVICE bool same_operation() {
        for (int peer = 0; peer < arguments_.ranks; ++peer)
            if (peer != arguments_.rank && !same_operation(peer, load_relaxed(&own_.barrier[team_.block][peer])))
                return false;
        return true;
    }
    WEFT_DEVICE bool same_operation(int peer, uint64_t word) {
        if (uint32_t(word) == fingerprint_) return true;
        if (int32_t(epoch_of(word) - first_epoch_) < 0 || int32_t(epoch_of(word) - epoch_) > 0) return true;
        if (team_.block != 0) await_first_block();
        return fail(KernelFailure::mismatch, KernelWait::nothing, peer, uint32_t(word)), false;
    }
    // Blocks of a kernel with several calls do not wait for each other, and mismatched calls may have fewer blocks. So
    // this block may have seen a later call. Block 0 takes part in all calls and reaches the first mismatch.
    WEFT_DEVICE_COLD void await_first_block() {
        for (const uint64_t begin = clock_ns(); load_relaxed(&own_.failed) == 0 &&
                                                load_relaxed(arguments_.abort) == 0 &&
                                                clock_ns() - begin < first_block_patience_ns;)
            sleep_a_little();
    }
    WEFT_DEVICE bool await_peer(int peer, KernelWait waiting) {
        const uint64_t* word = &own_.barrier[team_.block][peer];
        uint64_t seen = 0;
        const bool came = spin(
            waiting, [&] { return peer; },
            [&] {
                seen = load_acquire(word);  // pairs with publish()
                return int32_t(epoch_of(seen) - epoch_) >= 0;
            });
        return came && same_operation(peer, seen);
    }
    // Relaxed is enough for packets, which prove their own arrival, and for data with flags of its own.
    WEFT_DEVICE void publish(bool release) {
        for (int peer = team_.thread; peer < arguments_.ranks; peer += team_.threads) {
            if (peer == arguments_.rank) continue;
            uint64_t* word = &arguments_.flags[peer]->barrier[team_.block][arguments_.rank];
            const uint64_t value = barrier_word(epoch_, fingerprint_);
            if (release)
                store_release(word, value);
            else
                store_relaxed(word, value);
        }
    }
    // The epochs wrap round: old packets must not look like new ones. No packet has epoch 0, and no rank sends into the
    // memory that is cleared between epochs 0 and 1.
    WEFT_DEVICE_COLD bool restart_epochs() {
        const KernelArguments& a = arguments_;
        if (a.domain) publish(false);
        if (!await(KernelWait::entry)) return false;
        if (a.domain && a.packets[a.rank] && team_.block < packet_blocks) {
            for (uint32_t parity = 0; parity < 2; ++parity)
                for (int sender = 0; sender < a.ranks; ++sender) {
                    PacketLine* lines = packet_lines(a.packets[a.rank], a.ranks, parity, team_.block, sender);
                    for (int i = team_.thread; i < lines_per_sender; i += team_.threads) lines[i] = {};
                }
        }
        team_.barrier();
        ++epoch_;
        if (a.domain) publish(true);
        if (!await(KernelWait::entry)) return false;
        ++epoch_;
        return true;
    }

    const Team& team_;
    const KernelArguments& arguments_;
    RankFlags& own_;
    uint32_t epoch_, first_epoch_, fingerprint_;
    uint64_t tile_ = 0;
};

}  // namespace weft::internal::cuda
