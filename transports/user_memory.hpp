// user_memory.hpp: the memory of the user that a communicator's network transport reads and writes by itself. Calls look
// their buffers up there, and post them without a copy.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "transports/transport.hpp"

namespace weft::internal {

// Owned by the planner. Thread-bound to the rank. It outlives the connections.
class UserMemory {
  public:
    // `transport`: Capability::registers or one_sided; null: no peer is reached by such a transport, and nothing is
    // registered.
    UserMemory(const Transport* transport, int rank) : transport_(transport), rank_(rank) {}
    UserMemory(const UserMemory&) = delete;
    UserMemory& operator=(const UserMemory&) = delete;

    const Transport* transport() const { return transport_; }
    // Null: the memory is not registered, so that messages are copied. The log has the reason. May take milliseconds.
    const RegisteredMemory* add(std::byte* data, size_t bytes);
    // The users that may be left when a range ends: none; calls in progress; senders of a dead communicator.
    enum class Users { none, calls, senders };
    void remove(const RegisteredMemory* memory, Users users);
    // Ends the ranges that calls may have used. No call may be in progress.
    void forget_ended() { ended_.clear(); }

    bool empty() const { return ranges_.empty(); }
    // The registered memory that holds all these bytes, or null. Of ranges that overlap, only the last one counts.
    RegisteredMemory* find(const std::byte* data, size_t bytes) const {
        if (ranges_.empty()) return nullptr;
        const auto after = ranges_.upper_bound(data);
        if (after == ranges_.begin()) return nullptr;
        RegisteredMemory* const memory = std::prev(after)->second.get();
        return memory->holds(data, bytes) ? memory : nullptr;
    }

  private:
    const Transport* transport_;
    int rank_;
    std::multimap<const std::byte*, std::unique_ptr<RegisteredMemory>> ranges_;  // by first byte
    std::vector<std::unique_ptr<RegisteredMemory>> ended_;                       // that may still be in use
};

}  // namespace weft::internal
