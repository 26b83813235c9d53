// simulated_connections.hpp: the connections of a simulation: slots, credits, and the threads, NICs or kernels that carry
// the bytes of slots.
#pragma once
#include <unordered_map>
#include <vector>

#include "src/simulator/event_queue.hpp"
#include "src/simulator/simulated_block.hpp"
#include "src/simulator/simulated_links.hpp"

namespace weft::internal {

struct SlotTimes {
    double arrives_us, free_us, bytes;
};
struct ConnectionCosts {
    int32_t path = -1;
    double latency_us = 0, credit_us = 0, overhead_us = 0, carrier_us = 0, most = unlimited;
    bool driven = true;
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
    ConnectionCosts costs;
    bool carrying = false;
    double begins_us = unlimited;  // carrying: when the carrier thread begins with it
};

// A simulated rank can stand for others (symmetry.hpp). Then a message to one of those arrives at the rank that stands
// for it. So a connection is identified by its sender's place in the turn and the distance between its ends.
class SimulatedConnections {
  public:
    // `blocks` are those of the simulation, which it reads.
    SimulatedConnections(const Fabric& fabric, int period, SimulatedLinks& links, EventQueue& events,
                         const std::vector<SimulatedBlock>& blocks);
    void reserve(size_t connections) { connections_.reserve(connections); }
    Result<int32_t> add(int channel, int from, int to, int depth);
    void set_sender(int32_t connection, int32_t block) { connections_[size_t(connection)].sender = block; }
    void set_receiver(int32_t connection, int32_t block) { connections_[size_t(connection)].receiver = block; }
    // Fails if an end of a connection is missing.
    Status check_ends() const;

    const SimulatedConnection& operator[](int32_t connection) const { return connections_[size_t(connection)]; }
    const SlotTimes& slot(const SimulatedConnection& connection, uint64_t number) const {
        return slots_[slot_index(connection, number)];
    }
    // The block at the sending end has filled a slot, or the one at the receiving end has released one.
    void fill(int32_t connection, double bytes, double now_us);
    void release(int32_t connection, double now_us);
    // Events of this connection.
    void carry_event(int32_t connection, double now_us);
    void come(int32_t connection, double now_us);
    // The flow of a carried slot has ended. The sending block, if it waits for a free slot; -1: it does not.
    int32_t flow_ended(int32_t connection, double now_us);

    uint64_t messages() const { return messages_; }
    double message_bytes() const { return message_bytes_; }

  private:
    size_t slot_index(const SimulatedConnection& connection, uint64_t number) const {
        return connection.first_slot + number % uint64_t(connection.slots);
    }
    SlotTimes& times(const SimulatedConnection& connection, uint64_t number) {
        return slots_[slot_index(connection, number)];
    }
    void carry(int32_t connection, double now_us);
    void begin_carrying(int32_t connection, double now_us);
    double carrier_begins(int32_t rank, double takes_us, double now_us);
    void arrived(SlotTimes& slot, const SimulatedConnection& connection, double at_us);

    const Fabric& fabric_;
    const int period_;
    SimulatedLinks& links_;
    EventQueue& events_;
    const std::vector<SimulatedBlock>& blocks_;
    std::vector<SimulatedConnection> connections_;
    std::unordered_map<uint64_t, int32_t> connection_of_;
    std::vector<SlotTimes> slots_;
    std::vector<double> carrier_free_us_;  // by rank: until then its carrier thread is busy
    uint64_t messages_ = 0;
    double message_bytes_ = 0;
};

// The owner of a flow: a block that drives it, or a connection whose slots a NIC or the kernel carries.
constexpr int32_t owner_of_connection(int32_t connection) { return -1 - connection; }
constexpr int32_t connection_of_owner(int32_t owner) { return -1 - owner; }

}  // namespace weft::internal
