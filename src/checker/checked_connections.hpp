// checked_connections.hpp: the connections of a proof: their slots, and the instructions that send and receive.
#pragma once
#include <deque>
#include <utility>
#include <vector>

#include "src/checker/checked_memory.hpp"
#include "src/checker/thread_queue.hpp"
#include "src/checker/verdict.hpp"

namespace weft::internal {

class CheckedConnections {
  public:
    CheckedConnections(const CheckedSet& set, CheckedMemory& memory, Verdict& verdict, ThreadQueue& queue)
        : set_(set), memory_(memory), verdict_(verdict), queue_(queue), connections_(set.connections().size()) {}

    // Whether the step has its message and its free slot. If not, the other end adds the thread to the queue.
    bool ready(const StepContext& here);
    bool execute(const StepContext& here);
    bool has_message(int connection) const { return !connections_[size_t(connection)].slots.empty(); }
    size_t full_slots(int connection) const { return connections_[size_t(connection)].slots.size(); }
    size_t depth(const StepContext& here) const {
        const int depth = set_.options().fifo_depth;
        return size_t(depth > 0 ? depth : here.schedule->fifo_depth);
    }
    // Fails if a message was never received.
    Status leftovers() const;

  private:
    struct SentChunks {
        std::vector<std::pair<int, Value>> values;  // by chunk, without the empty ones
        int chunk = 0;
        int count = 1;
        int step = 0;
        bool in_scratch = false;  // at the sender, or at an earlier one
    };
    struct CheckedConnection {
        std::deque<SentChunks> slots;
        int blocked_sender = -1, blocked_receiver = -1;  // threads that wait
    };

    const CheckedSet& set_;
    CheckedMemory& memory_;
    Verdict& verdict_;
    ThreadQueue& queue_;
    std::vector<CheckedConnection> connections_;
    size_t under_way_ = 0;  // chunks in their slots
};

}  // namespace weft::internal
