// access_arguments.hpp: the arguments of the kernel of a one-sided call, and the signal counters between ranks. Plain
// data with the same layout in the host's compiler and the device's.
#pragma once
#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/gpu/kernels/message_arguments.hpp"

namespace weft::internal::cuda {

inline constexpr int signal_count = WEFT_SIGNALS * WEFT_SIGNAL_CONTEXTS;  // from one rank to another

// A rank's signal counters from and to one peer (or itself). Zero when the communicator begins.
struct SignalCounters {
    alignas(128) uint64_t received[signal_count];  // signals received from the peer; the peer writes it with release
    alignas(128) uint64_t sent[signal_count];      // signals sent to the peer; only this rank's kernels write this and
                                                   // the next
    uint64_t consumed[signal_count];               // signals of `received` that waits have consumed
};
constexpr size_t signals_bytes(int ranks) { return sizeof(SignalCounters) * size_t(ranks); }

// Stored beside the FailureReport of a kernel that waits for signals, before its `failure`.
struct SignalReport {
    int32_t signal;  // as in AccessArguments
    uint64_t received, wanted;
};

inline constexpr int signal_waits_max = 64;  // of one kernel
struct AccessWait {
    int32_t peer, signal;
    uint64_t wanted;
};
struct AccessWaits {
    int32_t count;
    AccessWait each[signal_waits_max];
};

struct AccessArguments {
    int32_t rank;
    uint32_t launch;  // as in KernelArguments
    uint64_t timeout_ns;
    const uint32_t* abort;
    uint32_t* ended;  // as in KernelArguments
    FailureReport* report;
    SignalReport* signal_report;
    BlockWait* block_waits;  // by block, for a kernel that waits
    RankFlags* own;
    SignalCounters* signals[ranks_max];  // by rank: that rank's counters, indexed by rank
    // The bytes to copy, if any, and then a signal for `peer`; -1: no signal.
    const std::byte* from;
    std::byte* to;
    uint64_t bytes;
    int32_t peer, signal;
    // Or the signals that one block waits for; each signal occurs once.
    AccessWaits waits;
};
static_assert(sizeof(AccessArguments) <= 4096, "passed by value");

inline constexpr const char* access_entry_point = "weft_access";

}  // namespace weft::internal::cuda
