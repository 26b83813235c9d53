// fabric.hpp: the machine as the simulator sees it: links that messages share, routes over them, and the speed of a
// rank itself. An interface with three implementations: equal hosts (hosts_fabric.hpp), graphs
// (topology/fabric/graph_fabric.hpp), and a fabric with faults (degraded_fabric.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace weft::internal {

inline constexpr double unlimited = std::numeric_limits<double>::infinity();

// Bytes use all links of a route at the same time. A single message of b bytes arrives after `latency_us` plus b over
// the speed of the slowest link.
struct Route {
    std::vector<int32_t> links = {};
    double latency_us = 0;            // from the departure of the last byte until the receiver sees the message
    double credit_us = 0;             // from the release of a slot until the sender sees it
    double overhead_us = 0;           // additional time of the block at each end of a message
    double bytes_per_us = unlimited;  // the upper limit of one connection
    // The part of that latency which the only carrier thread of the rank works at each end, one message after the
    // other.
    double carrier_us = 0;
    // True: the sending block moves the bytes, and is busy until the last byte has left; slots are the receiver's.
    // False: a NIC or the kernel carries the bytes while the block continues. Then slots are the sender's and free when
    // their bytes have left, and at most `window` messages are in flight or at the receiver.
    bool driven = true;
    static constexpr int window = 16;  // 4 MiB with usual slots: the size to which socket buffers grow
    bool exists = true;                // false: there is no route
};

// The speed of a rank itself, equal for all ranks.
struct RankCosts {
    double step_us = 0;  // of an instruction that moves bytes, before the first byte
    // The upper speed of a block's copies and reductions. Instructions of a flag block and fused ones use many
    // processors where a rank has them: those of `gang` blocks.
    double copy_bytes_per_us = unlimited, reduce_bytes_per_us = unlimited;
    int gang = 1;
    bool one_thread = false;  // the rank runs one instruction at a time, of any block; else its blocks run in parallel
    double signal_us = 0;     // from the last post on a flag block until all waiting ranks continue
    double start_us = 0;      // of a call, before its first instruction and after its last
    size_t slot_bytes = 512 << 10;       // of a connection with the default number of slots
    size_t shared_slot_bytes = 1 << 20;  // most bytes of a rank's slot of the flag block
};

class Fabric {
  public:
    virtual ~Fabric() = default;
    virtual int ranks() const = 0;
    virtual const RankCosts& costs() const = 0;
    // Links are numbered from 0. A link has one direction.
    virtual int links() const = 0;
    virtual double bytes_per_us(int link) const = 0;
    virtual std::string link_name(int link) const = 0;
    // Of messages between two different ranks.
    virtual Route route(int from, int to) const = 0;
    // Of copies and reductions of a rank in its own memory: only `links` count.
    virtual Route local(int rank) const = 0;
    // Of reads by `rank` in the memory of another rank of its flag block: only `links` count.
    virtual Route reading(int rank, int owner) const { return route(owner, rank); }
    // The factor by which the steps of this rank are slower than costs() says.
    virtual double slowness(int /*rank*/) const { return 1; }
    // The same fabric with routes around these links where there are some. Null: the fabric knows no other routes.
    virtual std::unique_ptr<Fabric> around(const std::vector<int>& /*links*/) const { return nullptr; }

    // To turn the fabric is to count every rank r as r + rotation(), modulo the number of ranks. The turned fabric must
    // be the same: equal routes between the mapped ranks, over the mapped links. ranks(): no symmetry is known.
    virtual int rotation() const { return ranks(); }
    // Of all links that some turn maps onto `link`, the one that stands for all. `stays`: how many turns, with the
    // identity, leave each of them in place.
    struct Turned {
        int link, stays;
    };
    virtual Turned turned(int link) const { return {link, 1}; }
};

}  // namespace weft::internal
