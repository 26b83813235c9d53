// simulated_ranks.hpp: runs the blocks of the simulated ranks: each block runs until it waits, then the time moves to the
// next event. Used once: make, add(), connect(), run(), read.
#pragma once
#include <vector>

#include "src/simulator/dependents.hpp"
#include "src/simulator/simulated_block.hpp"
#include "src/simulator/simulated_connections.hpp"
#include "src/simulator/simulated_flags.hpp"
#include "src/simulator/simulated_links.hpp"
#include "src/simulator/simulated_rank.hpp"
#include "src/simulator/simulated_shape.hpp"

namespace weft::internal {

class SimulatedRanks {
  public:
    SimulatedRanks(const Fabric& fabric, const SimulatedCall& call, const SimulatedShape& shape);

    // Schedules without fused instructions, of the next rank.
    void add(Schedule schedule) { schedules_.push_back(std::move(schedule)); }
    Status connect();
    Status run();

    double now_us() const { return now_us_; }
    uint64_t messages() const { return connections_.messages(); }
    double message_bytes() const { return connections_.message_bytes(); }
    uint64_t events() const { return events_.count(); }
    RankUse rank_use(int rank) const;
    std::vector<BlockUse> block_uses() const;
    std::vector<LinkUse> link_uses() const { return links_.uses(now_us_); }

  private:
    // The work at the present time.
    struct Pending {
        std::vector<int32_t> blocks;   // to advance
        std::vector<int32_t> threads;  // ranks with blocks that want the only thread
        Dependents dependents;         // blocks that wait for a step
    };

    Status connect_rank(int rank);
    void handle(const SimulatedEvent& event);
    void advance(int32_t index);
    bool advance_step(int32_t index, const Instruction& instruction);
    bool can_begin(int32_t index, const Instruction& instruction);
    void begin(int32_t index);
    void begin_moving(int32_t index);
    void flow_ended(int32_t owner);
    void finish_work(int32_t index);
    void complete_step(int32_t index);
    void post(int32_t index, const Instruction& instruction);
    bool await(int32_t index, const Instruction& instruction);
    void wait(int32_t index, BlockPhase phase);
    void wait_until(int32_t index, BlockPhase phase, double at_us);
    void queue(int32_t index);
    void want_thread(int32_t index);
    void give_threads();

    const Fabric& fabric_;
    const RankCosts costs_;
    const SimulatedCall& call_;
    const SimulatedShape shape_;
    EventQueue events_;
    std::vector<Schedule> schedules_;
    std::vector<SimulatedBlock> blocks_;
    std::vector<SimulatedRank> ranks_;
    SimulatedLinks links_;
    SimulatedConnections connections_;
    SimulatedFlags flags_;
    Pending pending_;
    int32_t ended_ = 0;
    double now_us_ = 0;
    Status failure_;
};

}  // namespace weft::internal
