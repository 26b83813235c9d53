// fabric.hpp: what lies between ranks, as the simulator sees it: links that messages share, routes over them, and what
// a rank can do itself. An interface: hosts_fabric.hpp makes those of equal hosts, topology/fabric/graph_fabric.hpp those of
// graphs, degraded_fabric.hpp makes any of them worse.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace weft::internal {

inline constexpr double unlimited = std::numeric_limits<double>::infinity();

// Bytes take each link of a route at the same time: a message of b bytes alone is there after `latency_us` and b over
// the slowest link.
struct Route {
    std::vector<int32_t> links = {};
    double latency_us = 0;            // from the last byte's leaving until the receiver sees the message
    double credit_us = 0;             // from the receiver's release of a message until who sends sees it
    double overhead_us = 0;           // what each end's block has to do for a message besides
    double bytes_per_us = unlimited;  // the most that one connection gets
    // Of that latency, at each end: what the rank's one thread that carries does for a message, one after the other.
    double carrier_us = 0;
    // By the sending block, which is busy until the last byte has left; else somebody else carries the slot's bytes, a
    // NIC or a kernel, and the block goes on. Slots that are driven lie with the receiver; others are the sender's, free
    // as soon as their bytes have left, and `window` messages lie with the receiver or are on their way.
    bool driven = true;
    static constexpr int window = 16;  // of a usual slot 4 MiB: what sockets' buffers grow to
    bool exists = true;                // else no way leads there
};

// What a rank does by itself, the same for all of them.
struct RankCosts {
    double step_us = 0;  // of an instruction that moves bytes, before the first of them
    // The most that a block moves or adds up. Instructions of a flag block or fused ones are many processors' work where a
    // rank has many: `gang` blocks'.
    double copy_bytes_per_us = unlimited, reduce_bytes_per_us = unlimited;
    int gang = 1;
    bool one_thread = false;  // does one instruction at a time, of whatever block; else its blocks run side by side
    double signal_us = 0;     // from the last post on a flag block until all who wait for it go on
    double start_us = 0;      // of a call, before its first instruction and behind its last
    size_t slot_bytes = 512 << 10;       // of a connection with the usual few slots
    size_t shared_slot_bytes = 1 << 20;  // of a rank's slot of the flag block, the most
};

class Fabric {
  public:
    virtual ~Fabric() = default;
    virtual int ranks() const = 0;
    virtual const RankCosts& costs() const = 0;
    // Links are numbered from 0. Each has a direction.
    virtual int links() const = 0;
    virtual double bytes_per_us(int link) const = 0;
    virtual std::string link_name(int link) const = 0;
    // Of messages; the ranks differ.
    virtual Route route(int from, int to) const = 0;
    // Of what a rank copies or adds up in its own memory: `links` alone count.
    virtual Route local(int rank) const = 0;
    // Of what `rank` reads of the memory of another of its board: `links` alone count.
    virtual Route reading(int rank, int owner) const { return route(owner, rank); }
    // So many times as long as costs() say the rank takes for its steps.
    virtual double slowness(int /*rank*/) const { return 1; }
    // The same with routes around these links wherever there are some; null: it knows of none.
    virtual std::unique_ptr<Fabric> around(const std::vector<int>& /*links*/) const { return nullptr; }

    // To turn the fabric is to count every rank r as r + rotation(), the last ones as the first. It must be the same
    // then: equal routes between the ranks that stand for those before, over links that stand for those before.
    // ranks(): nothing is known.
    virtual int rotation() const { return ranks(); }
    // Of the links that stand for `link` in one turn or another, itself among them, the one that stands for all; and
    // how many of the turns leave each of them where it is, the one that turns nothing among them.
    struct Turned {
        int link, stays;
    };
    virtual Turned turned(int link) const { return {link, 1}; }
};

}  // namespace weft::internal
