// flows.hpp: the state of a connection's two ends. A flow belongs to its end and to the link, so it outlives the end.
// Thread-bound to the thread that drives the endpoint, once the link has it.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "transports/verbs/offers/offers.hpp"
#include "transports/verbs/registered.hpp"
#include "transports/verbs/transfers.hpp"
#include "transports/verbs/wire.hpp"

namespace weft::internal::verbs {

class Link;
class Flushes;

// The numbers of a connection that do not change.
struct Shape {
    int self = 0, peer = 0, channel = 0;
    uint64_t depth = 0;  // slots
    size_t slot_bytes = 0;
    // Slots that the caller gave; null: data follows its header. Each has `slot_bytes`.
    std::byte* given = nullptr;
    const Registered* given_memory = nullptr;
    uint32_t peer_process = 0;  // its net::process_mark(), at a sender

    static Shape of(const ConnectionOptions& options) {
        return {options.self,
                options.peer,
                options.channel,
                uint64_t(options.depth),
                options.slot_bytes,
                options.slots,
                static_cast<const Registered*>(options.slot_memory),
                0};
    }
    size_t stride() const { return given ? sizeof(MessageHeader) : stride_of(slot_bytes); }  // between headers
};

// The sending end of a connection: slots that messages wait in, and counts of messages. Its window is twice the
// receiver's slots: a rank may fill all slots again before it has heard that they were released.
struct Outgoing {
    Shape shape;
    std::unique_ptr<SlotMemory> memory;  // headers, and slots unless they are given; the target of confirming reads
    std::unique_ptr<OfferRing> offers;   // null: it takes none

    // Set by the thread that drives, once both sides are ready.
    Link* link = nullptr;
    Slots slots;
    uint32_t connection() const { return slots.connection; }

    // A message that is published and not complete.
    struct Message {
        const std::byte* data = nullptr;
        const Registered* memory = nullptr;  // of `data`; null: the slot
        uint64_t bytes = 0;
        uint16_t pending = 0;  // a bit for each part that is not complete
        uint8_t parts = 0, tries = 0;
        std::array<uint8_t, Immediate::parts_most> lanes{};  // of each part
        uint64_t fence = 0;                                  // transfers that are confirmed before it goes out
        bool offered = false;                                // it goes to the receiver's offer
    };
    Transfers transfers;
    std::vector<Message> messages;  // by number modulo the window
    // completed <= posted <= next, and posted - released <= depth.
    uint64_t next = 0, posted = 0, completed = 0, released = 0;
    uint64_t lent_end = 0;  // one more than the last message in the caller's memory
    int repeated = 0;       // parts before `completed` that are on their way once more
    Status failure;         // of the set-up
    bool closed = false;    // the sender has gone; what it published still goes out

    uint64_t window() const { return shape.given ? shape.depth : 2 * shape.depth; }
    size_t memory_bytes() const { return size_t(window()) * shape.stride() + sizeof(MessageHeader); }
    bool has_room() const { return next < completed + window() && next < released + window(); }
    bool through() const { return posted == next && completed >= lent_end && transfers.idle(); }
    Message& message(uint64_t number) { return messages[size_t(number % window())]; }
    const Message& message(uint64_t number) const { return messages[size_t(number % window())]; }
    std::byte* header(uint64_t number) const { return memory->data() + size_t(number % window()) * shape.stride(); }
    std::byte* slot(uint64_t number) const {
        return shape.given ? shape.given + size_t(number % shape.depth) * shape.slot_bytes
                           : header(number) + sizeof(MessageHeader);
    }
    std::byte* read_target() const { return memory->data() + size_t(window()) * shape.stride(); }
};

// Which parts of a slot's message have arrived. A value.
struct Arrival {
    uint16_t all = 0, missing = 0;  // a bit for each part; 0: no part has arrived
    uint64_t order = 0;             // once complete: the message's number among all that the link has received

    bool complete() const { return missing == 0 && all != 0; }
    uint16_t arrived() const { return uint16_t(all & ~missing); }
    // False: it has arrived already, or the message has other parts.
    bool add(int part, int parts) {
        if (all == 0) all = missing = uint16_t((1u << parts) - 1);
        const auto bit = uint16_t(1u << part);
        if ((missing & bit) == 0) return false;
        missing = uint16_t(missing & ~bit);
        return true;
    }
};

// The receiving end of a connection.
struct Incoming {
    Shape shape;
    // Headers, and slots unless they are given. Lives as long as the link: the peer may still write there.
    std::unique_ptr<SlotMemory> memory;

    Link* link = nullptr;        // once the peer's sender has come
    Flushes* flushes = nullptr;  // of the link
    uint32_t connection = 0;

    std::vector<Arrival> arrivals;        // by slot
    uint64_t released = 0, credited = 0;  // messages; those that the sender knows of
    uint64_t visible = 0;                 // messages, from the first, that kernels see, if they need a flush for that
    OpenOffers offers;
    Status failure;
    bool closed = false;

    bool ready(uint64_t message) const { return message < released + shape.depth && arrival(message).complete(); }
    Arrival& arrival(uint64_t message) { return arrivals[size_t(message % shape.depth)]; }
    const Arrival& arrival(uint64_t message) const { return arrivals[size_t(message % shape.depth)]; }
    bool needs_flush() const {
        return shape.given && shape.given_memory->range().kind == RangeKind::device &&
               shape.given_memory->range().needs_flush;
    }
    // Half of the slots at once: the other half keeps the sender busy meanwhile. While offers are open, the next one may
    // bring the credit of the message that was just released: the sender should not get that before.
    bool owes_credits() const {
        const uint64_t half = (shape.depth + 1) / 2;
        return released - credited >= (offers.any() ? std::max(half, std::min<uint64_t>(2, shape.depth)) : half);
    }
    std::byte* header(uint64_t number) const { return memory->data() + size_t(number % shape.depth) * shape.stride(); }
    std::byte* slot(uint64_t number) const {
        return shape.given ? shape.given + size_t(number % shape.depth) * shape.slot_bytes
                           : header(number) + sizeof(MessageHeader);
    }
    const Registered& slot_memory() const { return shape.given ? *shape.given_memory : memory->registered(); }
    // Without keys.
    Area headers() const { return {.address = uintptr_t(header(0)), .stride = shape.stride()}; }
    Area slots() const {
        return {.address = uintptr_t(slot(0)), .stride = shape.given ? shape.slot_bytes : shape.stride()};
    }
};

}  // namespace weft::internal::verbs
