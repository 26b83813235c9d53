// Two-level all-to-all by leaders: one rank of each host carries the parts of all its ranks for other hosts. The flag
// block gathers these parts, the leader sends one message to each other leader, and the flag block distributes what
// arrives.
// A host sends H-1 messages. Each is as long as L messages of two_level_all_pairs, one of each of its ranks. This suits
// short parts, where messages are expensive or many ranks share a core; hosts may differ in size. The gathered parts
// need a wide slot of the flag block, and equally wide scratch.
// Source: Traeff and Rougier, "MPI collectives and datatypes for hierarchical all-to-all communication", 2014.
#include <algorithm>
#include <cmath>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/two_level/two_level.hpp"

namespace weft::internal {

namespace {

// One slot is enough. With two, the next tile travels while the receiver processes this one.
constexpr int leader_exchange_fifo_depth = 2;

// A leader, its host's first rank, and the ranks of other hosts, numbered cyclically from the end of that host on.
struct LeaderExchange {
    explicit LeaderExchange(const Layout& layout)
        : hosts(layout),
          rank(layout.rank),
          ranks(layout.ranks),
          own(hosts.local()),
          local(int(own.size())),
          leader(own[0]) {}

    Hosts hosts;
    int rank, ranks;
    std::vector<int32_t> own;  // this host's ranks
    int local, leader;
    bool leads() const { return rank == leader; }
    int remote_ranks() const { return ranks - local; }
    int beside(int distance) const { return own[size_t((hosts.place + distance) % local)]; }
    // Calls emit(leader, how many ranks) for each other host.
    template <class Emit>
    void each_other(Emit&& emit) const {
        for (int distance = 1; distance < hosts.count(); ++distance) {
            const auto others = hosts[(hosts.host + distance) % hosts.count()];
            emit(int(others[0]), int(others.size()));
        }
    }
    // A leader's message to another leader has a chunk for each pair of their ranks, sender by sender, in the order of
    // the receivers. The position of that message among all those sent or received.
    int message_of(int other) const { return local * ((other - leader - local + ranks) % ranks); }
    // Arrivals lie in the leader's slot, behind the parts for the ranks of its own host.
    int arrival_of(int other) const { return ranks + message_of(other); }
};

struct Sizes {
    int longest_message = 0, width = 0;
    explicit Sizes(const Layout& layout) {
        int largest = 0, most = 0;
        for (const auto ranks : layout.ranks_by_host()) {
            const int size = int(ranks.size());
            longest_message = std::max(longest_message, largest * size);
            largest = std::max(largest, size);
            most = std::max(most, size * (layout.ranks - size));
        }
        width = 1 + (most + layout.ranks - 1) / layout.ranks;
    }
};

void exchange_alone(const LeaderExchange& exchange, Builder& schedule) {
    schedule.block({}).copy({exchange.rank});
    exchange.each_other([&](int other, int ranks) {
        BlockBuilder block = schedule.block({.source = other, .target = other});
        block.span(ranks).send({other});
        block.span(ranks).recv({other});
    });
}

// The leaders' part, in the order in which messages are gathered. Returns the steps after which everything has arrived.
std::vector<Dependency> exchange_messages(const LeaderExchange& exchange, Builder& schedule,
                                          BlockBuilder& local_phase) {
    // Scratch is written when all of the previous tile's scratch has been sent.
    Gate gate(size_t(exchange.hosts.count() - 1));
    std::vector<Dependency> sent, come;
    exchange.each_other([&](int other, int ranks) {
        const int message = exchange.message_of(other), length = exchange.local * ranks;
        const auto row = [&](int first) { return Chunk{first, 0, ranks}.then(1); };
        StepBuilder gathered = gate.pass(local_phase, [&] {
            return local_phase.loop(ranks).copy(row(other)).to(Buffer::scratch).into(row(message));
        });
        for (int place = 1; place < exchange.local; ++place)
            gathered = local_phase.loop(ranks)
                           .copy(row(other))
                           .from(Buffer::slot)
                           .of({exchange.own[size_t(place)]})
                           .to(Buffer::scratch)
                           .into(row(message + place * ranks));
        BlockBuilder block = schedule.block({.source = other, .target = other});
        sent.push_back(block.span(length).send({message}).from(Buffer::scratch).after(gathered).dependency());
        come.push_back(block.span(length).recv({exchange.arrival_of(other)}).to(Buffer::slot).dependency());
    });
    gate.after(sent, 1);
    return come;
}

constexpr TwoLevel exchange_by_leaders = {"leader_all_pairs", nullptr, all_pairs_gathered_us, 1};

// The chunks that a slot of a connection holds at one line each.
constexpr int message_most = 4096;

}  // namespace

Schedule leader_all_pairs_all_to_all(const Layout& layout, const Parameters&) {
    const LeaderExchange exchange(layout);
    const Sizes sizes(layout);
    const int rank = exchange.rank, local = exchange.local;
    Builder schedule(exchange_by_leaders.name, Collective::all_to_all, layout,
                     {.chunks = exchange.ranks,
                      .fifo_depth = leader_exchange_fifo_depth,
                      .span = sizes.longest_message,
                      .shared_ranks = exchange.own,
                      .wide = sizes.width});
    if (local == 1) return exchange_alone(exchange, schedule), schedule.finish();
    BlockBuilder entries = schedule.block({}), results = schedule.block({});
    // The leader reads its own parts from its input.
    StepBuilder staged =
        exchange.leads() ? entries.span(local - 1).copy({rank + 1}).to(Buffer::slot)
                         : entries.span(exchange.ranks - 1).copy(Chunk{0, rank + 1, exchange.ranks}).to(Buffer::slot);
    entries.post(entry);
    entries.copy({rank});
    entries.wait(entry);
    std::vector<Dependency> come;
    if (exchange.leads()) come = exchange_messages(exchange, schedule, entries);
    for (int distance = 1; distance < local; ++distance) {
        const int other = exchange.beside(distance);
        entries.copy({rank}).from(Buffer::slot).of({other}).into({other});
    }
    const auto take = [&] {
        results.loop(exchange.remote_ranks())
            .copy(
                Chunk{exchange.ranks + exchange.hosts.place, 0, local * (exchange.remote_ranks() - 1) + 1}.then(local))
            .from(Buffer::slot)
            .of({exchange.leader})
            .into(Chunk{0, exchange.leader + local, exchange.ranks}.then(1));
    };
    if (exchange.leads()) {
        after_all(results, come, [&] { return results.post(done); });
        take();
        staged.after(results.wait(done), runs_ahead);
    } else {
        results.post(done);
        results.wait(done);
        take();
    }
    return schedule.finish();
}

double leader_all_pairs_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const Network network(layout, costs, bytes);
    const Sizes sizes(layout);
    const double local = network.ranks_a_host();
    LinkCosts alone = costs;
    alone.ranks_per_core = 1;
    const double messages_in_a_slot =
        double(bytes) / layout.ranks * sizes.longest_message / double(costs.net_slot_bytes);
    const double tiles = std::max(double(costs.tiles(bytes)), std::ceil(messages_in_a_slot));
    // All ranks stage and copy out. The leader gathers chunk by chunk, lines that another core has written, and the
    // others wait. The constant is between the cost of one chunk and a step of the simulator.
    constexpr double chunk_us = 0.2;
    const double chunks = local * (layout.ranks - local);
    const double local_phase_us = chunks * chunk_us + 2 * costs.meeting_us() * tiles + 2 * costs.skew_us +
                                  2 * costs.stream_us(bytes, 2 * bytes) +
                                  local * alone.stream_us(bytes, size_t(2 * local) * bytes);
    // The leader's processor transmits while the waiting ranks take their turns on it.
    LinkCosts in_turns = costs;
    if (costs.one_machine) in_turns.net_us_per_byte *= costs.ranks_per_core;
    const double between = between_hosts_us(exchange_by_leaders, layout, in_turns, size_t(local) * bytes, 1);
    return local_phase_us + between + (tiles - 1) * network.message_us(true);
}

const char* no_leaders_of_pairs(const Layout& layout) {
    if (const char* refusal = no_leaders(layout)) return refusal;
    if (const char* refusal = too_many_pairs(layout_of_hosts(layout))) return refusal;
    const Sizes sizes(layout);
    return sizes.longest_message > message_most || sizes.width * layout.ranks > Schedule::wide_chunks_most
               ? "has what all ranks of a host send to others in one rank's memory: at most 64 on each, fewer of many "
                 "hosts"
               : nullptr;
}

}  // namespace weft::internal
