// simulated_ranks.hpp: the state of a simulation: blocks of ranks that run their steps, connections with slots and
// credits, and flag blocks. Used once: make, add(), connect(), run(), read.
// A simulated rank can stand for others (symmetry.hpp). Then a message to one of those arrives at the rank that stands
// for it. So a connection is identified by its sender's place in the turn and the distance between its ends.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "src/simulator/flows.hpp"
#include "src/simulator/simulator.hpp"

namespace weft::internal {

class SimulatedRanks {
  public:
    struct Shape {
        int ranks = 1;   // in all
        int period = 1;  // the first `period` ranks are simulated
        size_t bytes = 0, tile_bytes = 0;
        bool even = false;  // every chunk counts as the mean of the sizes
    };
    SimulatedRanks(const Fabric& fabric, const SimulatedCall& call, const Shape& shape);

    // Schedules without fused instructions, of the next rank.
    void add(Schedule schedule) { schedules_.push_back(std::move(schedule)); }
    Status connect();
    Status run();

    double now_us() const { return now_us_; }
    uint64_t messages() const { return messages_; }
    double message_bytes() const { return message_bytes_; }
    uint64_t events() const { return events_.count(); }
    RankUse rank_use(int rank) const;
    std::vector<BlockUse> block_uses() const;
    std::vector<LinkUse> link_uses() const;

  private:
    // The values from `message` on have the order of Awaited.
    enum class Phase : uint8_t {
        ready,       // to check whether the next step can begin
        message,     // waits for one
        credit,      // waits for a free slot
        dependency,  // waits for a step of its rank
        meeting,     // waits for the others of its flag block
        thread,      // waits for the only thread of its rank
        working,
        ended,
    };
    struct SimulatedBlock {
        const Block* block;
        int32_t rank;               // simulated
        int32_t in = -1, out = -1;  // connections
        uint64_t tile = 0;
        int32_t step = 0, iteration = 0;
        Phase phase = Phase::ready;
        bool queued = false;
        int32_t flows = 0;    // flows of this step in progress
        double bytes = 0;     // bytes of this step's message or chunks
        double begin_us = 0;  // of this step; before that, the time since when it waits for the thread of its rank
        double busy_us = 0, end_us = 0;
        double ready_us = 0;  // when its last step that moved bytes ended
        Awaited awaited = Awaited::nothing;
    };
    struct SimulatedRank {
        int32_t first_block = 0, blocks = 0;
        int32_t dependents = 0;      // blocks that wait for a step of this one
        int32_t thread_waiters = 0;  // blocks that wait for the only thread
        int32_t last = 0;            // the block that had the thread last
        bool thread_busy = false;
        int32_t working = 0;  // blocks
        double since_us = 0, busy_us = 0, end_us = 0;
        double carries_until_us = 0;  // until then its carrier thread is busy
        double slowness = 1;
        int32_t flag_block = -1;
        int32_t local_path = -1;
    };
    struct SlotTimes {
        double arrives_us, free_us, bytes;
    };
    struct SimulatedConnection {
        int32_t channel, from, distance;
        int32_t depth = 1;
        int32_t slots = 1;  // slots that are tracked: the depth, and one window more if the slots are carried
        size_t first_slot = 0;
        // Counts of slots: filled by the sender, carried, arrived at the carrier of the receiver (if it has one), and
        // released by the receiver.
        uint64_t filled = 0, carried = 0, come = 0, released = 0;
        int32_t sender = -1, receiver = -1;  // blocks
        int32_t path = -1;
        double latency_us = 0, credit_us = 0, overhead_us = 0, carrier_us = 0, most = unlimited;
        bool driven = true, carrying = false;
        double begins_us = unlimited;  // carrying: when the carrier thread begins with it
    };
    struct PhaseArrivals {
        uint64_t tile = ~uint64_t(0);
        int32_t posted = 0;
        double last_us = 0;
    };
    static constexpr int phases_kept = 64;  // most tiles that ranks of a flag block can be apart, in any phase
    struct SimulatedFlagBlock {
        int32_t members = 0;  // members that are simulated
        PhaseArrivals phases[2][phases_kept];
        std::vector<int32_t> waiting;  // blocks
    };

    // In simulated_ranks.cpp.
    void advance(int32_t index);
    bool advance_step(int32_t index, const Instruction& instruction);
    bool can_begin(int32_t index, const Instruction& instruction);
    void begin(int32_t index);
    void begin_moving(int32_t index);
    void move(int32_t index, int path, double bytes, double most);
    void flow_ended(int32_t owner);
    void finish_work(int32_t index);
    void complete_step(int32_t index);
    void carry(int32_t connection);
    void begin_carrying(int32_t connection);
    void come(int32_t connection);
    double carrier_begins(int32_t rank, double takes_us);
    void arrived(SlotTimes& slot, const SimulatedConnection& connection, double at_us);
    bool reached(const SimulatedBlock& state, const Dependency& dependency) const;
    bool post(int32_t index, const Instruction& instruction);
    bool await(int32_t index, const Instruction& instruction);
    void wait(int32_t index, Phase phase);
    void wait_until(int32_t index, Phase phase, double at_us);
    void queue(int32_t index);
    void want_thread(int32_t index);
    void give_threads();
    double bytes_of(const SimulatedBlock& state, const Instruction& instruction) const;
    SlotTimes& slot(const SimulatedConnection& connection, uint64_t number) {
        return slots_[connection.first_slot + number % uint64_t(connection.slots)];
    }

    // In simulated_set_up.cpp.
    Result<int32_t> connection(int channel, int from, int to, int depth);
    Status connect_rank(int rank);
    Status load_flag_blocks();
    int path_of(const Route& route);
    int path_within(int rank, int owner, const Route& route);
    int reading_path(int rank, int owner);
    std::string waits_for(const SimulatedBlock& state) const;
    Status deadlock() const;
    int link(int of_fabric);
    int stays(int of_fabric) const;  // Fabric::Turned

    const Fabric& fabric_;
    const RankCosts costs_;
    const SimulatedCall& call_;
    const Shape shape_;
    uint64_t tiles_;
    EventQueue events_;
    Flows flows_;
    std::vector<Schedule> schedules_;
    std::vector<SimulatedBlock> blocks_;
    std::vector<SimulatedRank> ranks_;
    std::vector<SimulatedConnection> connections_;
    std::unordered_map<uint64_t, int32_t> connection_of_;
    std::vector<SlotTimes> slots_;
    std::vector<SimulatedFlagBlock> flag_blocks_;
    std::unordered_map<int, int> link_of_;  // numbers of the fabric's links, turned
    std::vector<int> fabric_link_;          // by number here
    std::unordered_map<uint64_t, int> reading_of_;
    std::vector<int32_t> queue_;    // blocks
    std::vector<int32_t> threads_;  // ranks with blocks that want the only thread
    size_t queue_at_ = 0;
    int32_t ended_ = 0;
    double now_us_ = 0;
    uint64_t messages_ = 0;
    double message_bytes_ = 0;
    Status failure_;
};

}  // namespace weft::internal
