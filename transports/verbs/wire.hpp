// wire.hpp: the data that two processes exchange: the receiver's address, the frames that make a link, the header of a
// message, and the immediate data of its writes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/drivers/verbs/path.hpp"
#include "src/net/address.hpp"
#include "src/net/bytes.hpp"
#include "src/net/handshake.hpp"
#include "transports/transport.hpp"

namespace weft::internal::verbs {

// A receiver's address, as it travels in a Blob.
struct ListenAddress {
    uint64_t token = 0;   // of the receiver's endpoint. The upper half is its net::process_mark()
    uint32_t number = 0;  // of the connection in that endpoint
    int depth = 0;
    size_t slot_bytes = 0;
    std::vector<net::Address> addresses;  // of the door

    net::TargetProcess target() const { return {.process = uint32_t(token >> 32)}; }
    Blob blob() const;  // with as many of the addresses as fit, best first
    static std::optional<ListenAddress> of(const Blob& blob);
};
uint64_t make_token();

// In front of the data in a slot.
struct alignas(64) MessageHeader {
    static constexpr uint32_t expected_magic = 0x62766677;  // "wfvb"
    uint32_t magic = expected_magic;
    uint32_t fingerprint = 0;
    uint64_t number = 0;  // of the message, from 0
    uint64_t bytes = 0;
    uint64_t operation = 0;
    uint32_t credits = 0;  // as immediate data: of a connection in the other direction; 0: none
    uint32_t offered = 0;  // 1: the data is in the receiver's offer for this message
};
static_assert(sizeof(MessageHeader) == 64);
constexpr size_t stride_of(size_t slot_bytes) { return sizeof(MessageHeader) + (slot_bytes + 63) / 64 * 64; }

// The immediate data of a write. All kinds begin with the kind and the connection (14 bits). A part of a message: the
// message's number modulo 256, the number of its parts less one (4 bits), and its place among them (4 bits). Credits: all
// released messages modulo 65,536. An offer: the number of its message modulo 65,536.
struct Immediate {
    enum Kind : uint32_t { part = 1, credits = 2, offer = 3 };
    static constexpr uint32_t connections_most = 1 << 14;
    static constexpr int parts_most = 16, depth_most = 256;

    static constexpr uint32_t of_part(uint32_t connection, uint64_t message, int parts, int index) {
        return uint32_t(part) << 30 | connection << 16 | uint32_t(message & 0xff) << 8 | uint32_t(parts - 1) << 4 |
               uint32_t(index);
    }
    static constexpr uint32_t of_credits(uint32_t connection, uint64_t released) {
        return uint32_t(credits) << 30 | connection << 16 | uint32_t(released & 0xffff);
    }
    static constexpr uint32_t of_offer(uint32_t connection, uint64_t message) {
        return uint32_t(offer) << 30 | connection << 16 | uint32_t(message & 0xffff);
    }
    static constexpr uint32_t kind_of(uint32_t word) { return word >> 30; }
    static constexpr uint32_t connection_of(uint32_t word) { return word >> 16 & 0x3fff; }
    static constexpr uint8_t message_of(uint32_t word) { return uint8_t(word >> 8); }
    static constexpr int parts_of(uint32_t word) { return int(word >> 4 & 0xf) + 1; }
    static constexpr int index_of(uint32_t word) { return int(word & 0xf); }
    static constexpr uint16_t released_of(uint32_t word) { return uint16_t(word); }
    static constexpr uint16_t offered_of(uint32_t word) { return uint16_t(word); }
};

// The frames of a link's socket. The side that connected begins with hello.
enum FrameKind : uint32_t {
    frame_hello = 1,     // an Offer
    frame_answer,        // an Offer with the chosen rails, and the answering side's queue pairs
    frame_use_mine,      // both sides connected: the other socket counts
    frame_pairs,         // PairLists: the queue pairs of the side that connected, which accept messages
    frame_ready,         // a bit for each lane: this side accepts messages there
    frame_want,          // Want: the sender of a connection asks for the receiver's slots
    frame_slots,         // Slots
    frame_refused,       // connection, Failure
    frame_failed,        // Failure: this side gave up the link
    frame_bye,           // this side ends in order
    frame_lane_report,   // LaneReport: this side uses a lane no more
    frame_lane_offer,    // LaneOffer: the lower rank makes a lane again
    frame_lane_answer,   // LaneOffer with the chosen GIDs
    frame_lane_refused,  // LaneId: not now
    frame_lane_ready,    // LaneId: this side accepts messages there
    frame_lane_hurry,    // LaneId: this side's port is active again
};

struct PairNumber {
    uint32_t number, sequence;                 // of a queue pair, of its first packet
    uint32_t ece_vendor = 0, ece_options = 0;  // of Enhanced Connection Establishment; vendor 0: none
};
using PairLists = std::vector<std::vector<PairNumber>>;  // by rail
void write_pairs(ByteWriter& to, const PairLists& pairs);
std::optional<PairLists> read_pairs(ByteReader& from);

// A port of one side.
struct PortOffer {
    PathEnd end;          // without GID and queue pair
    uint32_t device = 0;  // in Devices::all() of that side, for keys of registered memory
    std::vector<PortGid> gids;
    int rail = -1;  // as in WEFT_IB_DEVICES
    int mbps = 0;   // line rate; 0: unknown

    void write(ByteWriter& to) const;
    static std::optional<PortOffer> read(ByteReader& from);
};
struct Offer {
    static constexpr uint32_t expected_version = 7;
    uint64_t token = 0, peer_token = 0;  // of both endpoints
    int rank = 0;
    int rails_used = 1;  // as many as this side would send on
    int service_level = 0, traffic_class = 0;
    std::vector<PortOffer> ports;  // the nearest first; none: frame_failed follows

    // In an answer: the places of ports and GIDs in the offers of the answering and of the other side.
    struct Rail {
        uint32_t port, peer_port, gid, peer_gid;
    };
    std::vector<Rail> rails;
    PairLists pairs;  // by rail

    void write(ByteWriter& to) const;
    static std::optional<Offer> read(ByteReader& from);
};

// Memory of one side for the other's writes: a place for each slot.
struct Area {
    uint64_t address = 0, stride = 0;
    std::vector<uint32_t> keys = {};  // one for each rail
    uint64_t place(uint64_t slot) const { return address + slot * stride; }
};
struct Want {
    uint32_t number = 0;      // ListenAddress::number
    uint32_t connection = 0;  // chosen by the sender for this link
    int32_t depth = 0;
    uint64_t slot_bytes = 0;
    Area offers = {};  // the sender's ring; without keys: it takes no offers
    void write(ByteWriter& to) const;
    static std::optional<Want> read(ByteReader& from);
};
struct Slots {
    uint32_t connection = 0;
    Area headers, data;
    // Whether the data of a slot follows its header, so that one request writes both.
    bool together() const { return data.address == headers.address + sizeof(MessageHeader); }
    void write(ByteWriter& to) const;
    static std::optional<Slots> read(ByteReader& from);
};

}  // namespace weft::internal::verbs
