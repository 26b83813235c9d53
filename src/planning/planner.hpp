// planner.hpp: from an Operation to a Plan: chooses, builds the schedule, makes the connections, sizes the tiles.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/executor/make_run.hpp"
#include "src/planning/chooser.hpp"
#include "src/planning/connector.hpp"
#include "transports/user_memory.hpp"

namespace weft::internal {

// The agreed facts of a call, which select its plan. Nothing that one rank alone knows is part of the key.
struct PlanKey {
    uint64_t head;
    uint64_t count;
    // `preference`: see Planner. Coalesced calls have no root, so the two share bits.
    explicit PlanKey(const Operation& operation, uint8_t preference = 0)
        : head(uint64_t(operation.collective) | uint64_t(operation.purpose) << 5 | uint64_t(operation.type) << 8 |
               uint64_t(operation.op) << 16 | uint64_t(preference) << 24 |
               uint64_t(uint32_t(operation.root) ^ uint32_t(operation.coalesced ^ operation.coalesced >> 32)) << 32),
          count(operation.count) {}
    // Five bits and three.
    static_assert(uint8_t(Collective::reduce_scatter_v) < 1 << 5 && uint8_t(Purpose::copies) < 1 << 3);
    PlanKey() : head(~uint64_t(0)), count(0) {}
    bool operator==(const PlanKey&) const = default;
    auto operator<=>(const PlanKey&) const = default;
};

// A schedule and its connections, shared by the plans of all sizes.
struct Binding {
    Schedule schedule;
    StableSends stable_sends;      // find_stable_sends(schedule)
    EarlyReceives early_receives;  // find_early_receives(schedule)
    ConnectionSet connections;
};

// A plan and its run. The run is reused, so that a call allocates nothing.
struct PreparedPlan {
    explicit PreparedPlan(Plan made) : plan(std::move(made)), run(make_run(plan)) {}
    Plan plan;
    std::unique_ptr<Run> run;
};

// Owned by the communicator. Thread-bound to the rank. Connecting takes several steps, because the other end must listen
// first; nothing blocks.
class Planner {
  public:
    // `identity`: of the communicator, null if its ranks are on one host.
    Planner(Segment& group, const net::Identity* identity, int rank, FlagBlock* flag_block,
            const CpuKernels& cpu_kernels, int64_t streaming_bytes, std::shared_ptr<const Catalog> catalog,
            std::shared_ptr<const Machines> machines, std::shared_ptr<const Tuning> tuning);

    // See Chooser.
    bool knows(const CallPreference& wanted) const { return chooser_.knows(wanted); }
    Result<uint8_t> preference(const CallPreference& wanted) { return chooser_.preference(wanted); }
    Result<Choice> choose(const Operation& operation, uint8_t preference) const {
        return chooser_.choose(operation, preference);
    }
    std::string explain(const Operation& operation, uint8_t preference) const {
        return chooser_.explain(operation, preference);
    }

    // The schedule of a choice, made once. Fails if its messages do not fit their slots. The reason is an agreed fact, so
    // all ranks fail alike before any rank waits.
    Result<Binding*> bind(const Operation& operation, const Choice& choice);
    // One step of connecting. True when all connections exist. Otherwise `missing` has the ranks that have not listened
    // yet.
    Result<bool> connect(Binding& binding, RankSet& missing) {
        return connector_.connect(binding.connections, missing);
    }
    Result<std::unique_ptr<PreparedPlan>> plan(const Operation& operation, const Choice& choice, Binding& binding);

    // For other owners of a Connector, and for Messages.
    size_t* heap_used() { return &heap_used_; }
    PeerAccess& peer_access() { return peer_access_; }
    UserMemory& user_memory() { return user_memory_; }
    size_t net_slot_bytes() const { return chooser_.links().net_slot_bytes; }
    // The smallest point-to-point message that is stored past the caches.
    size_t streamed_message_bytes() const { return streamed_bytes(2); }
    const CpuKernels& cpu_kernels() const { return *cpu_kernels_; }
    uint64_t connection_bytes() const { return heap_used_ - FlagBlock::heap_bytes; }
    uint64_t scratch_bytes() const { return run_memory_.scratch.size(); }
    const AgreedOptions& agreed() const { return agreed_; }

  private:
    // The smallest whole between `ranks` ranks that is stored past the caches.
    size_t streamed_bytes(int ranks) const;

    FlagBlock* flag_block_;
    const CpuKernels* cpu_kernels_;
    int64_t streaming_bytes_;
    Chooser chooser_;
    // Whether two slots suffice for tiles that are read in order. Not if a user's algorithm uses the flag block, because
    // its blocks may be further apart than Weft's own.
    bool two_slots_;
    AgreedOptions agreed_;
    DirectAccess direct_access_;
    PeerAccess peer_access_;
    Cma cma_;
    struct RunMemory {
        std::vector<SlotStores> slot_stores;  // Plan::slot_stores
        std::vector<std::byte> scratch;       // for schedules that need it, one at a time
    } run_memory_;
    std::shared_ptr<const size_t> last_level_;  // bytes of last-level cache for the ranks' buffers
    size_t heap_used_ = FlagBlock::heap_bytes;
    UserMemory user_memory_;  // outlives the connections
    Connector connector_;
    struct BindingKey {
        const Algorithm* algorithm;
        int channels, root;
        auto operator<=>(const BindingKey&) const = default;
    };
    std::map<BindingKey, Binding> bindings_;
};

}  // namespace weft::internal
