// access.hpp: the kernel of a one-sided call: a put or get with a signal to the peer, or the wait for signals. The
// host's counterpart is rma/one_sided.hpp.
// A rank that acquires a counter sees all writes of the kernel that raised it, and of the earlier kernels of that rank.
// The last block to finish raises the counter.
#pragma once
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/kernel_end.hpp"
#include "src/gpu/kernels/reduce.hpp"

namespace weft::internal::cuda {

class AccessKernel {
  public:
    WEFT_DEVICE AccessKernel(const Team& team, const AccessArguments& arguments)
        : team_(team), a_(arguments), own_(*arguments.own) {}

    WEFT_DEVICE void run() const {
        if (!begin()) return;
        if (a_.bytes != 0) copy();
        if (a_.signal >= 0) raise();
        if (a_.waits.count != 0 && await()) take();
    }

  private:
    static constexpr uint64_t patience_ns = 100'000;  // a wait this long does not end in the next microsecond
    static constexpr uint64_t line = 128;

    struct Wait {
        uint64_t begin;  // ns; 0: not timed yet
        uint64_t polls;  // that have reported the wait
        bool failed = false;
    };

    WEFT_DEVICE bool first() const { return team_.thread == 0; }

    // False: an earlier kernel of this rank failed, or the communicator is aborted. Then the kernel writes nothing.
    WEFT_DEVICE bool begin() const {
        bool leaves = false;
        if (first()) {
            const bool aborted = load_relaxed(a_.abort) != 0;  // this load overlaps with the next one
            leaves = load_relaxed(&own_.failed) != 0;
            if (!leaves && aborted) leaves = true, report(*this, KernelFailure::aborted, a_.peer, {});
        }
        return !team_.any(leaves);
    }

    // Each block copies whole lines.
    WEFT_DEVICE void copy() const {
        const uint64_t blocks = uint64_t(team_.blocks);
        const uint64_t share = ((a_.bytes + blocks - 1) / blocks + line - 1) / line * line;
        const uint64_t offset = share * uint64_t(team_.block);
        if (offset >= a_.bytes) return;
        const uint64_t left = a_.bytes - offset;
        copy_range(team_, a_.to + offset, a_.from + offset, left < share ? left : share);
    }

    WEFT_DEVICE void raise() const {
        team_.barrier();
        if (!first()) return;
        if (team_.blocks > 1) {
            if (count_up(&own_.finished) + 1 != uint32_t(team_.blocks)) return;
            store_relaxed(&own_.finished, 0u);  // for the next kernel
        }
        uint64_t& sent = a_.signals[a_.rank][a_.peer].sent[a_.signal];
        store_release(&a_.signals[a_.peer][a_.rank].received[a_.signal], ++sent);  // pairs with received()
    }

    WEFT_DEVICE uint64_t received(const AccessWait& wait) const {
        const SignalCounters& counters = a_.signals[a_.rank][wait.peer];
        return load_acquire(&counters.received[wait.signal]) - counters.consumed[wait.signal];
    }

    // False: this kernel has failed.
    WEFT_DEVICE bool await() const {
        uint32_t turns = 0;
        Wait wait{0, 0};
        int next = team_.thread;
        for (;;) {
            while (next < a_.waits.count && received(a_.waits.each[next]) >= a_.waits.each[next].wanted)
                next += team_.threads;
            if (!team_.any(next < a_.waits.count)) break;
            ++turns;
            const bool looking = (turns & (turns_to_poll - 1)) == 0;
            if (looking && first()) wait = poll(*this, turns, wait);
            if (looking && team_.any(wait.failed)) return false;
            pause();
        }
        if (wait.polls != 0) publish({});
        return true;
    }
    WEFT_DEVICE void take() const {
        for (int i = team_.thread; i < a_.waits.count; i += team_.threads)
            a_.signals[a_.rank][a_.waits.each[i].peer].consumed[a_.waits.each[i].signal] += a_.waits.each[i].wanted;
    }

    WEFT_DEVICE void publish(const RankBits& missing) const {
        RankBits& ranks = a_.block_waits[team_.block].ranks;
        store_relaxed(&ranks.low, missing.low);
        store_relaxed(&ranks.high, missing.high);
    }
    // As MessageKernel::poll(); only the first thread calls it.
    static WEFT_DEVICE_COLD Wait poll(AccessKernel self, uint32_t turns, Wait wait) {
        return self.poll_here(turns, wait);
    }
    WEFT_DEVICE Wait poll_here(uint32_t turns, Wait wait) const {
        if ((turns & (turns_to_clock - 1)) != 0) return wait;
        const uint64_t now = clock_ns();
        if (wait.begin == 0) wait.begin = now;
        RankBits ranks;
        int missing = 0;
        SignalReport lacking{};
        for (int i = a_.waits.count - 1; i >= 0; --i) {
            const AccessWait& awaited = a_.waits.each[i];
            const uint64_t there = received(awaited);
            if (there >= awaited.wanted) continue;
            ranks.add(awaited.peer);
            missing = awaited.peer;
            lacking = {awaited.signal, there, awaited.wanted};
        }
        if (ranks.none()) return wait;
        const bool aborted = load_relaxed(a_.abort) != 0;
        if (aborted || (a_.timeout_ns != 0 && now - wait.begin > a_.timeout_ns)) {
            report_here(aborted ? KernelFailure::aborted : KernelFailure::timeout, missing, lacking);
            return {0, 0, true};
        }
        if (now - wait.begin > patience_ns) {
            publish(ranks);
            store_release(&a_.block_waits[team_.block].polls, ++wait.polls);
            sleep_a_little();
        }
        return wait;
    }
    static WEFT_DEVICE_COLD void report(AccessKernel self, KernelFailure failure, int peer, SignalReport lacking) {
        self.report_here(failure, peer, lacking);
    }
    // As in KernelBarrier.
    WEFT_DEVICE void report_here(KernelFailure failure, int peer, const SignalReport& lacking) const {
        if (!claim(&own_.failed, uint32_t(failure) | (a_.launch & 0xffffff) << 8)) return;
        *a_.signal_report = lacking;
        FailureReport& report = *a_.report;
        report.waiting = KernelWait::signal;
        report.rank = a_.rank;
        report.peer = peer;
        report.block = uint32_t(team_.block);
        report.timeout_ns = a_.timeout_ns;
        store_release(reinterpret_cast<uint32_t*>(&report.failure), uint32_t(failure));
    }

    const Team team_;
    const AccessArguments& a_;
    RankFlags& own_;
};

WEFT_DEVICE void access(const Team& team, const AccessArguments& arguments) {
    AccessKernel(team, arguments).run();
    report_end(team, arguments);
}

}  // namespace weft::internal::cuda
