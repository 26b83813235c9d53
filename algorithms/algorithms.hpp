// algorithms.hpp: what each file of this folder gives registry.cpp for its row.
#pragma once
#include "algorithms/algorithm.hpp"

namespace weft {

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

// Why a layout is not for what runs over one board of all ranks, or for what needs boards and a network; null: it is.
const char* several_hosts(const Layout& layout);
const char* not_two_levels(const Layout& layout);
// Why there are too many ranks for connections between all of them; null: there are not.
const char* too_many_pairs(const Layout& layout);

}  // namespace weft
