// kernel_barrier.hpp: how one block of a rank's kernel meets the same block of its peers: epochs, barriers, and waits that end
// when all is there, when the communicator is aborted, when another block has failed, when a peer turns out to have
// called something else, or at the deadline; then a report says who waited for whom.
//
// A block's epoch rises same_operation on all ranks, for what moves it follows from the operation. So a peer's word of an epoch
// of this operation holds this operation's fingerprint, or the ranks have called different things. A peer that is ahead
// of us has met us before, and thereby compared.
#pragma once
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"

namespace weft::internal::cuda {

// Of the source or the destination of a fused body.
constexpr bool is_one_of(int only, int rank) { return only < 0 || only == rank; }

class KernelBarrier {
  public:
    WEFT_DEVICE KernelBarrier(const Team& team, const KernelArguments& arguments)
        : team_(team), arguments_(arguments), own_(*arguments.own) {
        epoch_ = own_.epoch[team.block];
        begin_operation(arguments.fingerprint);
    }
    // The next one of a kernel that carries out several.
    WEFT_DEVICE void begin_operation(uint32_t fingerprint) {
        fingerprint_ = fingerprint;
        first_epoch_ = epoch_ + 1;
    }

    WEFT_DEVICE uint32_t epoch() const { return epoch_; }
    WEFT_DEVICE void at_tile(uint64_t tile) { tile_ = tile; }

    // All return false if this rank's kernel has failed; the block then leaves. The whole team calls them.

    // Before anything else. After a failure a kernel that was enqueued behind it finds its epochs used in part: what it
    // told or sent would be taken for the failed one's. A graph's next replay has the failed one's number. A block of a
    // kernel that met another call goes on, as does the next replay then: peers shall hear what this rank called, and
    // compare it.
    WEFT_DEVICE bool begin() {
        const uint32_t failed = load_relaxed(&own_.failed);
        const bool heard = arguments_.domain && KernelFailure(failed & 0xff) == KernelFailure::mismatch &&
                           failed >> 8 == (arguments_.launch & 0xffffff) && load_relaxed(arguments_.abort) == 0;
        return !team_.any(failed != 0 && !heard);
    }
    // The next epoch, told to all peers. Nobody is waited for, but every 2^32 times. The team has met since the epoch
    // before. Of a barrier what stood before the kernel in its stream is seen by peers that have awaited the epoch.
    WEFT_DEVICE bool announce() {
        ++epoch_;
        if (epoch_ == 0 && !restart_epochs()) return false;
        if (arguments_.domain) publish(arguments_.bytes == 0);
        return true;
    }
    // Until all peers have announced this epoch. What they did before is seen afterwards.
    WEFT_DEVICE bool await(KernelWait waiting) {
        bool failed = false;
        for (int peer = team_.thread; arguments_.domain && peer < arguments_.ranks; peer += team_.threads)
            if (peer != arguments_.rank) failed |= !await_peer(peer, waiting);
        return !team_.any(failed);
    }
    // All that this team has written, wherever it is, is seen by the peers that come out.
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

    // For a single thread: asks `ready` until it says yes. `peer` says who is missing. False: leave.
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

    // The first failure of the rank is reported; all its blocks leave.
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
    static constexpr uint64_t patience_ns = 100'000;  // a wait that long will not end in the next microsecond
    // A third rank that is late may keep block 0 from what differs.
    static constexpr uint64_t first_block_patience_ns = 1'000'000'000;

    // Not every turn: the words lie in memory beyond the multiprocessor, the abort word beyond the device.
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
    // Whether no peer has come into an epoch of this operation with another one.
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
    // Blocks of a kernel that carries out several calls do not wait for each other, and of calls that differ one may
    // have fewer: this block may have met a call behind. Block 0 has part in all, and comes to the first that differs.
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
    // Relaxed suffices where what is sent proves itself (packets), or is told by words of its own.
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
    // The epochs are used up: packets of long ago must not look like new ones. Epoch 0 is no packet's, and nobody sends
    // into the memory that is cleared between epochs 0 and 1.
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
