// flows.hpp: the state of a connection's two ends. A flow belongs to its end and to the link, so it outlives the end.
// Thread-bound to the thread that drives the endpoint, once the link has it.
#pragma once
#include <memory>
#include <vector>

#include "transports/verbs/registered.hpp"
#include "transports/verbs/wire.hpp"

namespace weft::internal::verbs {

class Link;

// The numbers of a connection that do not change.
struct Shape {
    int self = 0, peer = 0, channel = 0;
    uint64_t depth = 0;  // slots
    size_t slot_bytes = 0, stride = 0;

    static Shape of(const ConnectionOptions& options) {
        return {options.self,       options.peer,
                options.channel,    uint64_t(options.depth),
                options.slot_bytes, stride_of(options.slot_bytes)};
    }
};

// The sending end of a connection: slots that messages wait in, and counts of messages. Its window is twice the
// receiver's slots: a rank may fill all slots again before it has heard that they were released.
struct Outgoing {
    Shape shape;
    std::unique_ptr<SlotMemory> memory;

    // Set by the thread that drives, once both sides are ready.
    Link* link = nullptr;
    uint32_t connection = 0;
    Slots slots;

    // A message that is published and not complete.
    struct Message {
        const std::byte* data = nullptr;
        const Registered* memory = nullptr;  // of `data`; null: the slot
        uint64_t bytes = 0;
        int parts_left = 0;
    };
    std::vector<Message> messages;  // by number modulo the window
    // completed <= posted <= next, and posted - released <= depth.
    uint64_t next = 0, posted = 0, completed = 0, released = 0;
    uint64_t lent_end = 0;  // one more than the last message in the caller's memory
    Status failure;         // of the set-up
    bool closed = false;    // the sender has gone; what it published still goes out

    uint64_t window() const { return 2 * shape.depth; }
    bool has_room() const { return next < completed + window() && next < released + window(); }
    bool through() const { return posted == next && completed >= lent_end; }
    Message& message(uint64_t number) { return messages[size_t(number % window())]; }
    std::byte* slot(uint64_t number) const { return memory->data() + size_t(number % window()) * shape.stride; }
};

// The receiving end of a connection.
struct Incoming {
    Shape shape;
    std::unique_ptr<SlotMemory> memory;  // lives as long as the link: the peer may still write there

    Link* link = nullptr;  // once the peer's sender has come
    uint32_t connection = 0;

    static constexpr int empty = -1;
    std::vector<int> parts_left;          // of the message in each slot, or `empty`
    uint64_t released = 0, credited = 0;  // messages; those that the sender knows of
    Status failure;
    bool closed = false;

    bool ready() const { return parts_left[size_t(released % shape.depth)] == 0; }
    // Half of the slots at once: the other half keeps the sender busy meanwhile.
    bool owes_credits() const { return released - credited >= (shape.depth + 1) / 2; }
    std::byte* slot(uint64_t number) const { return memory->data() + size_t(number % shape.depth) * shape.stride; }
};

}  // namespace weft::internal::verbs
