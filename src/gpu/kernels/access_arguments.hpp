// access_arguments.hpp: what the host hands to the kernel of a one-sided call, and the counters by which one rank's
// kernels tell another's that something is done. Plain data, laid out alike by the host's compiler and the device's.
#pragma once
#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/gpu/kernels/message_arguments.hpp"

namespace weft::internal::cuda {

inline constexpr int signal_count = WEFT_SIGNALS * WEFT_SIGNAL_CONTEXTS;  // from one rank to another

// What a rank has of its signals from and to one other, itself included. Zero when the communicator begins.
struct SignalCounters {
    alignas(128) uint64_t received[signal_count];  // so many ever, from that rank; written by it, released
    alignas(128) uint64_t sent[signal_count];      // for that rank; this and the next by this rank's kernels alone
    uint64_t consumed[signal_count];               // of `received`, what has been waited for
};
constexpr size_t signals_bytes(int ranks) { return sizeof(SignalCounters) * size_t(ranks); }

// Beside the FailureReport of a kernel that waited for signals, before its `failure`.
struct SignalReport {
    int32_t signal;  // as in AccessArguments
    uint64_t received, wanted;
};

inline constexpr int signal_waits_max = 64;  // of one kernel
struct AccessWait {
    int32_t peer, signal;
    uint64_t wanted;
};

struct AccessArguments {
    int32_t rank;
    uint32_t launch;  // as in KernelArguments
    uint64_t timeout_ns;
    const uint32_t* abort;
    FailureReport* report;
    SignalReport* signal_report;
    BlockWait* block_waits;  // by block: of a kernel that waits
    RankFlags* own;
    SignalCounters* signals[ranks_max];  // by rank, what each has, by rank
    // Bytes that are copied, if any; then a signal that is sent for `peer`; -1: none.
    const std::byte* from;
    std::byte* to;
    uint64_t bytes;
    int32_t peer, signal;
    // Or what is waited for, by one block: each signal once.
    int32_t wait_count;
    AccessWait waits[signal_waits_max];
};
static_assert(sizeof(AccessArguments) <= 4096, "passed by value");

inline constexpr const char* access_entry_point = "weft_access";

}  // namespace weft::internal::cuda
