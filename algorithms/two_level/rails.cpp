// Two-level all-reduce over connections only, for ranks without a flag block: GPUs of several hosts. It uses all pairs
// inside a host, and any algorithm between hosts along rails. A rail is the ranks at one position of each host;
// positions follow the NICs if these are known.
// The buffer is cut into as many shards as the smallest host has ranks. Each rank sends each shard to its owner on the
// host. The owner reduces them, all-reduces the sum along its rail, in place in its output, and sends the result to the
// others. Each byte leaves a host as often as in the algorithm between hosts, over all links at once.
// Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", 2019.
#include <algorithm>
#include <climits>
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/patterns.hpp"
#include "algorithms/two_level/two_level.hpp"

namespace weft::internal {

namespace {

// A ring needs two slots. Other algorithms need one, but with one the sender waits for the receiver's reduction.
constexpr int rails_fifo_depth = 2;
// One connection for unreduced parts and one for finished shards, in separate blocks: reductions do not wait for tiles
// that travel between hosts.
constexpr int parts_channel = 0, finished_channel = 1, channels_inside = 2;

// Slots of connections within a host take half a megabyte each, and a rank has two to and two from each other rank.
constexpr size_t rails_most = 32;

class RailSchedule {
  public:
    RailSchedule(const TwoLevel& levels, const Layout& layout, const Parameters& parameters)
        : hosts_(Hosts::by_rails(layout)),
          own_(hosts_.local()),
          owners_(int(owners_of(levels, layout))),
          inner_(levels.between_hosts(layout_of_hosts(layout), parameters)),
          schedule_(levels.name, Collective::all_reduce, layout,
                    {.channels = std::max(inner_.channels, channels_inside),
                     .chunks = inner_.chunks * owners_,
                     .fifo_depth = rails_fifo_depth,
                     .span = inner_.chunks}) {}

    Schedule make() {
        if (own_.size() == 1) {
            along_rail(Buffer::input).emit(schedule_);
            return schedule_.finish();
        }
        const std::optional<StepBuilder> sum = add_up();
        const std::vector<Dependency> ends =
            sum ? along_rail(Buffer::output).emit(schedule_, sum->dependency()) : std::vector<Dependency>();
        hand_out(ends);
        return schedule_.finish();
    }

  private:
    bool owns(int place) const { return place < owners_; }
    Chunk shard(int owner) const { return {owner * inner_.chunks}; }
    Embedding along_rail(Buffer input) const {
        return {inner_,
                {.ranks = hosts_.column(hosts_.place),
                 .chunks = {{shard(hosts_.place).base, 1}},
                 .chunks_in_all = inner_.chunks * owners_,
                 .input = input}};
    }

    // For each other rank of the host, in turns, a block that receives from owners or sends to them: calls emit(block,
    // place).
    template <class Emit>
    void each(int channel, bool receives_from_owners, Emit&& emit) {
        for (const int place : others_in_turns(hosts_.place, int(own_.size()))) {
            const int peer = own_[size_t(place)];
            const bool receives = owns(receives_from_owners ? place : hosts_.place),
                       sends = owns(receives_from_owners ? hosts_.place : place);
            if (!receives && !sends) continue;
            emit(schedule_.block({channel, receives ? peer : -1, sends ? peer : -1}), place);
        }
    }
    // The host's sum of the own shard, if this rank owns one.
    std::optional<StepBuilder> add_up() {
        std::optional<StepBuilder> sum;
        given_.resize(own_.size());
        each(parts_channel, false, [&](BlockBuilder block, int place) {
            if (owns(place)) given_[size_t(place)] = block.span(inner_.chunks).send(shard(place)).dependency();
            if (!owns(hosts_.place)) return;
            StepBuilder next = block.span(inner_.chunks).recv_reduce_copy(shard(hosts_.place));
            if (sum) next.from(Buffer::output).after(*sum);
            sum = next;
        });
        return sum;
    }
    void hand_out(const std::vector<Dependency>& ends) {
        JoinedSteps finished(ends);
        each(finished_channel, true, [&](BlockBuilder block, int place) {
            if (owns(hosts_.place)) {
                const Dependency ready = finished.in(block);
                block.span(inner_.chunks).send(shard(hosts_.place)).from(Buffer::output).after(ready);
            }
            if (!owns(place)) return;
            StepBuilder taken = block.span(inner_.chunks).recv(shard(place));
            // In place, the shard overwrites the input that this rank sent to the owner. An owner has sent its input
            // before its sum was complete.
            if (!owns(hosts_.place)) taken.after(given_[size_t(place)]);
        });
    }

    Hosts hosts_;
    std::vector<int32_t> own_;  // this host's ranks
    int owners_;                // the number of ranks of each host, from the first, that own a shard
    Schedule inner_;
    Builder schedule_;
    std::vector<Dependency> given_;  // by position: the step that sent the part of that rank's shard
};

// A ring, with its many steps, was never the fastest along rails in the simulator.
constexpr TwoLevel rail_tree = {"rail_tree", double_binary_tree_all_reduce, double_binary_tree_all_reduce_us, INT_MAX};
constexpr TwoLevel rail_halving_doubling = {"rail_halving_doubling", halving_doubling_all_reduce,
                                            halving_doubling_all_reduce_us, INT_MAX};
constexpr TwoLevel rail_doubling = {"rail_doubling", recursive_doubling_all_reduce, recursive_doubling_all_reduce_us,
                                    INT_MAX};

// Inside a host each rank sends one message to each other rank, and receives one back. Sends and reductions follow each
// other. `exchanges`: between hosts one block sends and receives, so each tile waits until the previous one has
// arrived.
double rails_us(const TwoLevel& levels, bool exchanges, const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const Network network(layout, costs, bytes);
    const double owners = double(owners_of(levels, layout)), others = network.ranks_a_host() - 1;
    // A received part is reduced with the earlier ones, and ranks that share a core take turns for each message.
    const double latency = 2 * network.message_us(false) + others * (costs.signal_us / 2 + 2 * network.turns_us());
    const double passes = 2 + (1 + 2) * costs.side_by_side;
    const double handling = passes * costs.stream_us(size_t(double(bytes) * others / owners), 2 * bytes);
    // A short message fits in one shard.
    const double shards = std::clamp(double(bytes) / 64, 1.0, owners);
    double between = between_hosts_us(levels, layout, costs, size_t(double(bytes) / shards), shards);
    if (exchanges) between += double(costs.tiles(bytes) - 1) * network.message_us(true);
    return latency + overlapped_us(handling, between, costs, bytes);
}

}  // namespace

// Twice as many connections inside a host as all pairs needs.
const char* no_rails(const Layout& layout) {
    if (const char* refusal = not_two_levels(layout)) return refusal;
    for (const auto ranks : layout.ranks_by_host())
        if (ranks.size() > rails_most) return "needs two connections to every rank of a host: at most 32 ranks on each";
    return nullptr;
}

Schedule rail_tree_all_reduce(const Layout& layout, const Parameters& parameters) {
    return RailSchedule(rail_tree, layout, parameters).make();
}
double rail_tree_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rails_us(rail_tree, false, layout, costs, bytes);
}
Schedule rail_halving_doubling_all_reduce(const Layout& layout, const Parameters& parameters) {
    return RailSchedule(rail_halving_doubling, layout, parameters).make();
}
double rail_halving_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rails_us(rail_halving_doubling, true, layout, costs, bytes);
}
Schedule rail_doubling_all_reduce(const Layout& layout, const Parameters& parameters) {
    return RailSchedule(rail_doubling, layout, parameters).make();
}
double rail_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rails_us(rail_doubling, true, layout, costs, bytes);
}

}  // namespace weft::internal
