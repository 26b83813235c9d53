// simulated_ranks.hpp: runs the blocks of the simulated ranks: each block runs until it waits, then the time moves to the
// next event. Used once: make, add(), connect(), run(), read.
#pragma once
#include <string>
#include <vector>

#include "src/simulator/simulated_block.hpp"
#include "src/simulator/simulated_connections.hpp"
#include "src/simulator/simulated_flags.hpp"
#include "src/simulator/simulated_links.hpp"

namespace weft::internal {

class SimulatedRanks {
  public:
    struct Shape {
        int ranks = 1;   // in all
        int period = 1;  // the first `period` ranks are simulated
        size_t bytes = 0, tile_bytes = 0;
        bool even = false;  // every chunk counts as the mean of the sizes
        uint64_t tiles = 1;
    };
    SimulatedRanks(const Fabric& fabric, const SimulatedCall& call, const Shape& shape);

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
    struct SimulatedRank {
        int32_t first_block = 0, blocks = 0;
        int32_t dependents = 0;      // blocks that wait for a step of this one
        int32_t thread_waiters = 0;  // blocks that wait for the only thread
        int32_t last = 0;            // the block that had the thread last
        bool thread_busy = false;
        int32_t working = 0;  // blocks
        double since_us = 0, busy_us = 0, end_us = 0;
        double slowness = 1;
        int32_t local_path = -1;
    };

    // The work at the present time.
    struct Pending {
        std::vector<int32_t> blocks;   // to advance
        std::vector<int32_t> threads;  // ranks with blocks that want the only thread
    };

    Status connect_rank(int rank);
    void handle(const SimulatedEvent& event);
    void advance(int32_t index);
    bool advance_step(int32_t index, const Instruction& instruction);
    bool can_begin(int32_t index, const Instruction& instruction);
    void begin(int32_t index);
    void begin_moving(int32_t index);
    void move(int32_t index, int path, double bytes, double most);
    void flow_ended(int32_t owner);
    void finish_work(int32_t index);
    void complete_step(int32_t index);
    bool post(int32_t index, const Instruction& instruction);
    bool await(int32_t index, const Instruction& instruction);
    void wait(int32_t index, BlockPhase phase);
    void wait_until(int32_t index, BlockPhase phase, double at_us);
    void queue(int32_t index);
    void want_thread(int32_t index);
    void give_threads();
    double bytes_of(const SimulatedBlock& state, const Instruction& instruction) const;
    std::string waits_for(const SimulatedBlock& state) const;
    Status deadlock() const;

    const Fabric& fabric_;
    const RankCosts costs_;
    const SimulatedCall& call_;
    const Shape shape_;
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
