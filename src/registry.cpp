// registry.cpp: the only file that names every algorithm and every transport. A row is the registration.
#include "src/registry.hpp"

#include "algorithms/algorithms.hpp"
#include "transports/shm/shm.hpp"
#include "transports/tcp/tcp.hpp"

namespace weft::internal::registry {

static constexpr Algorithm in_rank_order(Algorithm row) {
    row.sums = Sums::in_rank_order;
    return row;
}
static constexpr Algorithm on_demand(Algorithm row) {
    row.on_demand = true;
    return row;
}
static constexpr Algorithm many_slots(Algorithm row) {
    row.many_slots = true;
    return row;
}
static constexpr Algorithm tree(Algorithm row) {
    row.tree = true;
    return row;
}

static constexpr Algorithm algorithm_table[] = {
    in_rank_order({"one_shot", Collective::all_reduce, one_shot_all_reduce, one_shot_all_reduce_us,
                   "everybody reads everything: one wait", several_hosts}),
    in_rank_order({"two_shot", Collective::all_reduce, two_shot_all_reduce, two_shot_all_reduce_us,
                   "2(N-1)/N of the buffer in two waits", several_hosts}),
    {"ring", Collective::all_reduce, ring_all_reduce, ring_all_reduce_us, "2(N-1)/N of the buffer in 2(N-1) steps"},
    {"recursive_doubling", Collective::all_reduce, recursive_doubling_all_reduce, recursive_doubling_all_reduce_us,
     "the whole buffer in each of log2 N rounds"},
    {"halving_doubling", Collective::all_reduce, halving_doubling_all_reduce, halving_doubling_all_reduce_us,
     "2(N-1)/N of the buffer in 2 log2 N rounds"},
    {"all_pairs", Collective::all_reduce, all_pairs_all_reduce, all_pairs_all_reduce_us,
     "2(N-1)/N of the buffer in two rounds of N-1 messages", too_many_pairs},
    on_demand(in_rank_order({"rank_order", Collective::all_reduce, rank_order_all_reduce, rank_order_all_reduce_us,
                             "all_pairs with sums in rank order", too_many_pairs_here})),
    tree({"double_binary_tree", Collective::all_reduce, double_binary_tree_all_reduce, double_binary_tree_all_reduce_us,
          "twice the buffer in 2 log2 N hops, tile behind tile", nullptr, double_binary_tree_tile_bytes}),
    {"two_level_ring", Collective::all_reduce, two_level_ring_all_reduce, two_level_ring_all_reduce_us,
     "shared memory inside a host, a ring between hosts", not_two_levels},
    tree({"two_level_tree", Collective::all_reduce, two_level_tree_all_reduce, two_level_tree_all_reduce_us,
          "shared memory inside a host, two trees between hosts", not_two_levels, two_level_tree_tile_bytes}),
    {"two_level_halving_doubling", Collective::all_reduce, two_level_halving_doubling_all_reduce,
     two_level_halving_doubling_all_reduce_us, "shared memory inside a host, halving-doubling between hosts",
     not_two_levels},
    {"two_level_doubling", Collective::all_reduce, two_level_doubling_all_reduce, two_level_doubling_all_reduce_us,
     "shared memory inside a host, recursive doubling between hosts", not_two_levels},
    {"leader_doubling", Collective::all_reduce, leader_doubling_all_reduce, leader_doubling_all_reduce_us,
     "shared memory inside a host, recursive doubling between one rank of each", not_two_levels},
    tree({"rail_tree", Collective::all_reduce, rail_tree_all_reduce, rail_tree_all_reduce_us,
          "all pairs inside a host, two trees for each of its ranks between hosts", no_rails,
          two_level_tree_tile_bytes}),
    {"rail_halving_doubling", Collective::all_reduce, rail_halving_doubling_all_reduce,
     rail_halving_doubling_all_reduce_us,
     "all pairs inside a host, halving-doubling for each of its ranks between hosts", no_rails},
    {"rail_doubling", Collective::all_reduce, rail_doubling_all_reduce, rail_doubling_all_reduce_us,
     "all pairs inside a host, recursive doubling for each of its ranks between hosts", no_rails},

    {"one_shot", Collective::broadcast, one_shot_broadcast, one_shot_broadcast_us,
     "the root writes once, all read: one wait", several_hosts},
    tree({"binomial_tree", Collective::broadcast, binomial_tree_broadcast, binomial_tree_broadcast_us,
          "the whole buffer in each of log2 N rounds"}),
    {"linear", Collective::broadcast, linear_broadcast, linear_broadcast_us, "the root to each, which goes on at once",
     too_many_ahead},
    {"ring", Collective::broadcast, ring_broadcast, ring_broadcast_us, "a chain, tile behind tile", nullptr,
     ring_chain_tile_bytes},
    {"scatter_all_gather", Collective::broadcast, scatter_all_gather_broadcast, scatter_all_gather_us,
     "2(N-1)/N of the buffer in 2 log2 N rounds", too_many_to_scatter},
    tree({"double_binary_tree", Collective::broadcast, double_binary_tree_broadcast, double_binary_tree_broadcast_us,
          "the buffer once in log2 N hops, tile behind tile", nullptr, double_binary_tree_tile_bytes}),
    tree({"leader_binomial_tree", Collective::broadcast, leader_binomial_tree_broadcast,
          leader_binomial_tree_broadcast_us, "shared memory inside a host, a tree between one rank of each",
          not_two_levels}),
    tree({"two_level_tree", Collective::broadcast, two_level_tree_broadcast, two_level_tree_broadcast_us,
          "shared memory inside a host, two trees between hosts", not_two_levels, two_level_tree_rooted_tile_bytes}),
    tree({"rail_binomial_tree", Collective::broadcast, rail_binomial_tree_broadcast, rail_binomial_tree_broadcast_us,
          "all pairs inside a host, a tree for each of its ranks between hosts", no_rails}),
    tree({"rail_tree", Collective::broadcast, rail_tree_broadcast, rail_tree_broadcast_us,
          "all pairs inside a host, two trees for each of its ranks between hosts", no_rails,
          two_level_tree_rooted_tile_bytes}),

    in_rank_order({"one_shot", Collective::reduce, one_shot_reduce, one_shot_reduce_us,
                   "the root reads everything: one wait", several_hosts}),
    in_rank_order({"two_shot", Collective::reduce, two_shot_reduce, two_shot_reduce_us,
                   "each sums a share, the root copies them: two waits", several_hosts}),
    tree({"binomial_tree", Collective::reduce, binomial_tree_reduce, binomial_tree_reduce_us,
          "the whole buffer in each of log2 N rounds"}),
    {"linear", Collective::reduce, linear_reduce, linear_reduce_us, "each to the root, and goes on at once",
     too_many_ahead},
    {"ring", Collective::reduce, ring_reduce, ring_chain_us, "a chain, tile behind tile", nullptr,
     ring_chain_tile_bytes},
    tree({"double_binary_tree", Collective::reduce, double_binary_tree_reduce, double_binary_tree_reduce_us,
          "the buffer once in log2 N hops, tile behind tile", nullptr, double_binary_tree_tile_bytes}),
    tree({"leader_binomial_tree", Collective::reduce, leader_binomial_tree_reduce, leader_binomial_tree_reduce_us,
          "shared memory inside a host, a tree between one rank of each", not_two_levels}),
    tree({"two_level_tree", Collective::reduce, two_level_tree_reduce, two_level_tree_reduce_us,
          "shared memory inside a host, two trees between hosts", not_two_levels, two_level_tree_rooted_tile_bytes}),
    on_demand(in_rank_order({"rank_order", Collective::reduce, rank_order_reduce, rank_order_reduce_us,
                             "each to the root, at once, which sums in rank order", too_many_pairs_here})),

    {"one_shot", Collective::all_gather, one_shot_all_gather, one_shot_all_gather_us,
     "each writes once, all read: one wait", several_hosts},
    // Before halving_doubling, which between two ranks is as long but sends what it has just written.
    {"all_pairs", Collective::all_gather, all_pairs_all_gather, all_pairs_gathered_us,
     "(N-1)/N of the buffer in a round of N-1 messages", too_many_pairs},
    {"halving_doubling", Collective::all_gather, halving_doubling_all_gather, halving_doubling_all_gather_us,
     "(N-1)/N of the buffer in log2 N rounds", too_many_parts},
    {"ring", Collective::all_gather, ring_all_gather, ring_all_gather_us, "(N-1)/N of the buffer in N-1 steps"},
    {"pat", Collective::all_gather, pat_all_gather, pat_all_gather_us,
     "(N-1)/N of the buffer in log2 N rounds, little of it far", too_many_parts},
    {"leader_halving_doubling", Collective::all_gather, leader_halving_doubling_all_gather,
     leader_halving_doubling_all_gather_us, "shared memory inside a host, log2 H rounds between one rank of each",
     no_leaders},
    {"two_level_ring", Collective::all_gather, two_level_ring_all_gather, two_level_ring_all_gather_us,
     "shared memory inside a host, a ring for each of its ranks between hosts", no_grid},
    {"rail_ring", Collective::all_gather, rail_ring_all_gather, rail_ring_all_gather_us,
     "all pairs inside a host, a ring for each of its ranks between hosts", no_rails_of_parts},
    {"rail_all_pairs", Collective::all_gather, rail_all_pairs_all_gather, rail_all_pairs_all_gather_us,
     "all pairs inside a host, and for each of its ranks between hosts", no_rails_of_pairs},

    in_rank_order({"one_shot", Collective::reduce_scatter, one_shot_reduce_scatter, one_shot_reduce_scatter_us,
                   "each writes once, each sums its part: one wait", several_hosts}),
    {"halving_doubling", Collective::reduce_scatter, halving_doubling_reduce_scatter,
     halving_doubling_reduce_scatter_us, "(N-1)/N of the buffer in log2 N rounds", too_many_parts},
    {"all_pairs", Collective::reduce_scatter, all_pairs_reduce_scatter, all_pairs_reduce_scatter_us,
     "(N-1)/N of the buffer in a round of N-1 messages", too_many_pairs},
    {"ring", Collective::reduce_scatter, ring_reduce_scatter, ring_reduce_scatter_us,
     "(N-1)/N of the buffer in N-1 steps"},
    {"pat", Collective::reduce_scatter, pat_reduce_scatter, pat_reduce_scatter_us,
     "(N-1)/N of the buffer in log2 N rounds, little of it far", too_many_parts},
    {"leader_halving_doubling", Collective::reduce_scatter, leader_halving_doubling_reduce_scatter,
     leader_halving_doubling_reduce_scatter_us, "shared memory inside a host, log2 H rounds between one rank of each",
     no_leaders},
    {"two_level_ring", Collective::reduce_scatter, two_level_ring_reduce_scatter, two_level_ring_reduce_scatter_us,
     "shared memory inside a host, a ring for each of its ranks between hosts", no_grid},
    {"rail_ring", Collective::reduce_scatter, rail_ring_reduce_scatter, rail_ring_reduce_scatter_us,
     "all pairs inside a host, a ring for each of its ranks between hosts", no_rails_of_parts},
    {"rail_all_pairs", Collective::reduce_scatter, rail_all_pairs_reduce_scatter, rail_all_pairs_reduce_scatter_us,
     "all pairs inside a host, and for each of its ranks between hosts", no_rails_of_pairs},
    on_demand(in_rank_order({"rank_order", Collective::reduce_scatter, rank_order_reduce_scatter,
                             rank_order_reduce_scatter_us, "all_pairs with sums in rank order", too_many_pairs_here})),

    {"one_shot", Collective::all_to_all, one_shot_all_to_all, one_shot_all_to_all_us,
     "each writes once, each reads its part: one wait", several_hosts},
    {"all_pairs", Collective::all_to_all, all_pairs_all_to_all, all_pairs_gathered_us,
     "(N-1)/N of the buffer in a round of N-1 messages", too_many_pairs_here},
    {"bruck", Collective::all_to_all, bruck_all_to_all, bruck_all_to_all_us,
     "half of the buffer in each of log2 N rounds", too_many_parts},
    {"two_level_all_pairs", Collective::all_to_all, two_level_all_pairs_all_to_all, two_level_all_pairs_all_to_all_us,
     "shared memory inside a host, one message from each rank to each other host", no_grid_of_pairs},
    {"leader_all_pairs", Collective::all_to_all, leader_all_pairs_all_to_all, leader_all_pairs_all_to_all_us,
     "shared memory inside a host, one message from one rank of it to each other host", no_leaders_of_pairs},
    {"rail_all_pairs", Collective::all_to_all, rail_all_pairs_all_to_all, rail_all_pairs_all_to_all_us,
     "all pairs inside a host, one message from each rank to each other host", no_rails_of_pairs},

    {"one_shot", Collective::gather, one_shot_gather, one_shot_from_one_us,
     "each writes once, the root reads: one wait", several_hosts},
    tree({"binomial_tree", Collective::gather, binomial_tree_gather, binomial_tree_gather_us, "log2 N rounds",
          too_many_parts}),
    {"linear", Collective::gather, linear_gather, linear_gather_us, "each to the root, at once", too_many_for_one},
    many_slots({"linear_ahead", Collective::gather, linear_ahead_gather, linear_ahead_gather_us,
                "each to the root, and goes on at once", too_many_ahead}),

    {"one_shot", Collective::scatter, one_shot_scatter, one_shot_from_one_us,
     "the root writes once, each reads its part: one wait", several_hosts},
    tree({"binomial_tree", Collective::scatter, binomial_tree_scatter, binomial_tree_scatter_us, "log2 N rounds",
          too_many_parts}),
    {"linear", Collective::scatter, linear_scatter, linear_scatter_us, "the root to each, at once", too_many_for_one},
    many_slots({"linear_ahead", Collective::scatter, linear_ahead_scatter, linear_ahead_scatter_us,
                "the root to each, which goes on at once", too_many_ahead}),

    {"one_shot", Collective::barrier, one_shot_barrier, one_shot_all_gather_us, "one wait", several_hosts},
    {"dissemination", Collective::barrier, dissemination_barrier, halving_doubling_all_gather_us, "log2 N rounds"},
};

std::span<const Algorithm> algorithms() { return algorithm_table; }

const Algorithm* find_algorithm(std::string_view name, Collective collective) {
    for (const Algorithm& row : algorithms())
        if (name == row.name && collective == row.collective) return &row;
    return nullptr;
}

std::span<const Transport> transports() {
    static const Transport table[] = {shm_transport, tcp_transport};
    return table;
}

}  // namespace weft::internal::registry
