// algorithms.hpp: the functions that each file of this folder provides for its row in registry.cpp.
#pragma once
#include "algorithms/algorithm.hpp"

namespace weft::internal {

Schedule ring_all_reduce(const Layout& layout, const Parameters& parameters);
double ring_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule one_shot_all_reduce(const Layout& layout, const Parameters& parameters);
double one_shot_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule two_shot_all_reduce(const Layout& layout, const Parameters& parameters);
double two_shot_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule recursive_doubling_all_reduce(const Layout& layout, const Parameters& parameters);
double recursive_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule halving_doubling_all_reduce(const Layout& layout, const Parameters& parameters);
double halving_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule all_pairs_all_reduce(const Layout& layout, const Parameters& parameters);
double all_pairs_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule rank_order_all_reduce(const Layout& layout, const Parameters& parameters);
Schedule rank_order_reduce(const Layout& layout, const Parameters& parameters);
Schedule rank_order_reduce_scatter(const Layout& layout, const Parameters& parameters);
double rank_order_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double rank_order_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double rank_order_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule double_binary_tree_all_reduce(const Layout& layout, const Parameters& parameters);
double double_binary_tree_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
size_t double_binary_tree_tile_bytes(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule two_level_ring_all_reduce(const Layout& layout, const Parameters& parameters);
double two_level_ring_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule two_level_tree_all_reduce(const Layout& layout, const Parameters& parameters);
double two_level_tree_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
size_t two_level_tree_tile_bytes(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule two_level_halving_doubling_all_reduce(const Layout& layout, const Parameters& parameters);
double two_level_halving_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule two_level_doubling_all_reduce(const Layout& layout, const Parameters& parameters);
double two_level_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule leader_doubling_all_reduce(const Layout& layout, const Parameters& parameters);
double leader_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule rail_tree_all_reduce(const Layout& layout, const Parameters& parameters);
Schedule rail_halving_doubling_all_reduce(const Layout& layout, const Parameters& parameters);
Schedule rail_doubling_all_reduce(const Layout& layout, const Parameters& parameters);
double rail_tree_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double rail_halving_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double rail_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

// The other collectives. Predictions are for a buffer of `bytes` in all; some rows share one.
Schedule ring_all_gather(const Layout& layout, const Parameters& parameters);
Schedule ring_reduce_scatter(const Layout& layout, const Parameters& parameters);
Schedule ring_broadcast(const Layout& layout, const Parameters& parameters);
Schedule ring_reduce(const Layout& layout, const Parameters& parameters);
double ring_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double ring_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double ring_chain_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double ring_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
size_t ring_chain_tile_bytes(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule one_shot_all_gather(const Layout& layout, const Parameters& parameters);
Schedule one_shot_barrier(const Layout& layout, const Parameters& parameters);
Schedule one_shot_reduce_scatter(const Layout& layout, const Parameters& parameters);
Schedule one_shot_broadcast(const Layout& layout, const Parameters& parameters);
Schedule one_shot_reduce(const Layout& layout, const Parameters& parameters);
Schedule one_shot_all_to_all(const Layout& layout, const Parameters& parameters);
Schedule one_shot_gather(const Layout& layout, const Parameters& parameters);
Schedule one_shot_scatter(const Layout& layout, const Parameters& parameters);
double one_shot_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double one_shot_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double one_shot_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double one_shot_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double one_shot_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double one_shot_from_one_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule two_shot_reduce(const Layout& layout, const Parameters& parameters);
double two_shot_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule all_pairs_all_gather(const Layout& layout, const Parameters& parameters);
Schedule all_pairs_all_to_all(const Layout& layout, const Parameters& parameters);
Schedule all_pairs_reduce_scatter(const Layout& layout, const Parameters& parameters);
double all_pairs_gathered_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double all_pairs_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule bruck_all_to_all(const Layout& layout, const Parameters& parameters);
double bruck_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule pat_all_gather(const Layout& layout, const Parameters& parameters);
Schedule pat_reduce_scatter(const Layout& layout, const Parameters& parameters);
double pat_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double pat_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule halving_doubling_all_gather(const Layout& layout, const Parameters& parameters);
Schedule halving_doubling_reduce_scatter(const Layout& layout, const Parameters& parameters);
Schedule dissemination_barrier(const Layout& layout, const Parameters& parameters);
double halving_doubling_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double halving_doubling_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule binomial_tree_broadcast(const Layout& layout, const Parameters& parameters);
Schedule binomial_tree_reduce(const Layout& layout, const Parameters& parameters);
Schedule binomial_tree_gather(const Layout& layout, const Parameters& parameters);
Schedule binomial_tree_scatter(const Layout& layout, const Parameters& parameters);
double binomial_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double binomial_tree_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double binomial_tree_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double binomial_tree_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule double_binary_tree_broadcast(const Layout& layout, const Parameters& parameters);
Schedule double_binary_tree_reduce(const Layout& layout, const Parameters& parameters);
double double_binary_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double double_binary_tree_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule scatter_all_gather_broadcast(const Layout& layout, const Parameters& parameters);
double scatter_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule linear_gather(const Layout& layout, const Parameters& parameters);
Schedule linear_scatter(const Layout& layout, const Parameters& parameters);
Schedule linear_ahead_gather(const Layout& layout, const Parameters& parameters);
Schedule linear_ahead_scatter(const Layout& layout, const Parameters& parameters);
Schedule linear_broadcast(const Layout& layout, const Parameters& parameters);
Schedule linear_reduce(const Layout& layout, const Parameters& parameters);
double linear_ahead_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double linear_ahead_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double linear_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double linear_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double linear_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double linear_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

// Two-level algorithms over several hosts.
Schedule two_level_ring_all_gather(const Layout& layout, const Parameters& parameters);
Schedule two_level_ring_reduce_scatter(const Layout& layout, const Parameters& parameters);
Schedule leader_halving_doubling_all_gather(const Layout& layout, const Parameters& parameters);
Schedule leader_halving_doubling_reduce_scatter(const Layout& layout, const Parameters& parameters);
Schedule two_level_all_pairs_all_to_all(const Layout& layout, const Parameters& parameters);
Schedule leader_all_pairs_all_to_all(const Layout& layout, const Parameters& parameters);
double two_level_ring_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double two_level_ring_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double leader_halving_doubling_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double leader_halving_doubling_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double two_level_all_pairs_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double leader_all_pairs_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule leader_binomial_tree_broadcast(const Layout& layout, const Parameters& parameters);
Schedule two_level_tree_broadcast(const Layout& layout, const Parameters& parameters);
Schedule leader_binomial_tree_reduce(const Layout& layout, const Parameters& parameters);
Schedule two_level_tree_reduce(const Layout& layout, const Parameters& parameters);
double leader_binomial_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double two_level_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double leader_binomial_tree_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double two_level_tree_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
size_t two_level_tree_rooted_tile_bytes(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule rail_ring_all_gather(const Layout& layout, const Parameters& parameters);
Schedule rail_all_pairs_all_gather(const Layout& layout, const Parameters& parameters);
Schedule rail_ring_reduce_scatter(const Layout& layout, const Parameters& parameters);
Schedule rail_all_pairs_reduce_scatter(const Layout& layout, const Parameters& parameters);
Schedule rail_all_pairs_all_to_all(const Layout& layout, const Parameters& parameters);
double rail_ring_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double rail_all_pairs_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double rail_ring_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double rail_all_pairs_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double rail_all_pairs_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule rail_tree_broadcast(const Layout& layout, const Parameters& parameters);
Schedule rail_binomial_tree_broadcast(const Layout& layout, const Parameters& parameters);
double rail_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes);
double rail_binomial_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

// The reason why a layout does not suit algorithms over one flag block of all ranks, or algorithms that need flag
// blocks and a network; null: it suits.
const char* several_hosts(const Layout& layout);
const char* not_two_levels(const Layout& layout);
// The same for collectives with parts: by columns of hosts of equal size; with connections between all hosts; by
// leaders.
const char* no_grid(const Layout& layout);
const char* no_grid_of_pairs(const Layout& layout);
const char* no_leaders(const Layout& layout);
const char* no_leaders_of_pairs(const Layout& layout);
const char* no_rails(const Layout& layout);  // over connections only
const char* no_rails_of_parts(const Layout& layout);
const char* no_rails_of_pairs(const Layout& layout);
// The reason why there are too many ranks for connections between all of them; null: there are not.
const char* too_many_pairs(const Layout& layout);
const char* too_many_pairs_here(const Layout& layout);  // on one host, where the flag block supports more
const char* too_many_of_a_host(const Layout& layout);   // on several hosts
const char* too_many_parts(const Layout& layout);       // in one message
const char* too_many_ahead(const Layout& layout);       // for a root that sends or receives many messages ahead
const char* too_many_for_one(const Layout& layout);     // for its root
const char* too_many_to_scatter(const Layout& layout);  // trees are faster at every size

}  // namespace weft::internal
