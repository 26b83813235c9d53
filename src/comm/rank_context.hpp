// rank_context.hpp: the state that all parts of a communicator share on one rank: its identity, the sequence number of
// its newest call, its planner, its GPU, and how it waits.
// Thread-bound to the thread that drives the rank, except where a function says otherwise.
#pragma once
#include <memory>

#include "src/comm/child_numbers.hpp"
#include "src/control/watchdog.hpp"
#include "src/gpu/engine/gpu_engine.hpp"
#include "src/p2p/peer_links.hpp"
#include "src/planning/planner.hpp"
#include "src/rendezvous/host_rendezvous.hpp"
#include "src/segment/waiting.hpp"

namespace weft::internal {

struct CommunicatorOptions {
    std::string name;
    bool blocking = true;
    bool slots_later = false;  // no slot memory before a call needs it: there may be none, or short ones
    int64_t timeout_ms = 0;    // 0: never
    int64_t init_timeout_ms = 0;
    int64_t warn_ms = 0;
    int64_t sleep_us = 0;
    int64_t streaming_bytes = -1;
    const CpuKernels* cpu_kernels = nullptr;
    std::shared_ptr<const Catalog> catalog;
    std::shared_ptr<const Machines> machines;  // of the communicator's ranks
    std::shared_ptr<const Tuning> tuning;      // rank 0's; null: only the built-in costs
};

// The deadline of a call.
struct Limit {
    int64_t timeout_ms = -1;  // negative: the communicator's
    const char* set_by = "timeoutMs of the call's config";
};

struct RankContext {
    RankContext(std::shared_ptr<Segment> group, std::shared_ptr<Membership> member, std::unique_ptr<GpuEngine> gpu,
                int own_rank, const CommunicatorOptions& made_with, std::unique_ptr<FlagBlock> flags);

    int ranks() const { return segment->ranks(); }
    RankRow& row() const { return segment->row(rank); }
    Position::Report position() const { return *row().position.read(); }  // never torn: our own row
    const net::Identity* identity() const { return membership ? &membership->identity() : nullptr; }
    // For messages outside schedules. `name` keeps the connection info of different users apart.
    PeerLinks::Settings link_settings(uint64_t name);
    // Before a call may wait.
    void begin_waiting() {
        waiting.seen_here();
        watchdog.begin();
    }
    // Waits for this rank's calls on device memory.
    void finish_device() const {
        if (!device) return;
        device->finish();
        device->look(true);
    }
    // The watchdog watches for this deadline.
    void watch(const Limit& limit);
    // Which of two deadlines comes first. The values are as in CallSettings. Thread-safe.
    int64_t earlier(int64_t one, int64_t other) const;

    // ---- Calls that an open group holds. Ranks that wait for this rank report them.
    void hold_call();
    void release_calls();

    std::shared_ptr<Segment> segment;
    std::shared_ptr<Membership> membership;  // null: one host
    int rank;
    CommunicatorOptions options;
    std::unique_ptr<GpuEngine> device;  // null: the process uses no CUDA
    std::unique_ptr<FlagBlock> flag_block;
    Planner planner;
    Waiting waiting;
    const int64_t repeat_us;  // as in WatchdogLimits
    Watchdog watchdog;
    uint64_t sequence = 0;
    ChildNumbers children;
    uint32_t held_calls = 0;
};

}  // namespace weft::internal
