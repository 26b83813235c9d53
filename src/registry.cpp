// registry.cpp: the only file that names every algorithm and every transport. A row is the registration.
#include "src/registry.hpp"

#include "algorithms/algorithms.hpp"
#include "transports/shm/shm.hpp"
#include "transports/tcp/tcp.hpp"

namespace weft::registry {

static constexpr Algorithm algorithm_table[] = {
    {"one_shot", Collective::all_reduce, one_shot_all_reduce, 1, one_shot_all_reduce_us,
     "everybody reads everything: one wait", several_hosts},
    {"two_shot", Collective::all_reduce, two_shot_all_reduce, 1, two_shot_all_reduce_us,
     "2(N-1)/N of the buffer in two waits", several_hosts},
    {"ring", Collective::all_reduce, ring_all_reduce, 1, ring_all_reduce_us, "2(N-1)/N of the buffer in 2(N-1) steps"},
    {"recursive_doubling", Collective::all_reduce, recursive_doubling_all_reduce, 1, recursive_doubling_all_reduce_us,
     "the whole buffer in each of log2 N rounds"},
    {"halving_doubling", Collective::all_reduce, halving_doubling_all_reduce, 1, halving_doubling_all_reduce_us,
     "2(N-1)/N of the buffer in 2 log2 N rounds"},
    {"all_pairs", Collective::all_reduce, all_pairs_all_reduce, 1, all_pairs_all_reduce_us,
     "2(N-1)/N of the buffer in two rounds of N-1 messages", too_many_pairs},
    {"double_binary_tree", Collective::all_reduce, double_binary_tree_all_reduce, 1, double_binary_tree_all_reduce_us,
     "twice the buffer in 2 log2 N hops, tile behind tile", nullptr, double_binary_tree_tile_bytes},
    {"two_level_ring", Collective::all_reduce, two_level_ring_all_reduce, 1, two_level_ring_all_reduce_us,
     "the board inside a host, a ring between hosts", not_two_levels},
    {"two_level_tree", Collective::all_reduce, two_level_tree_all_reduce, 1, two_level_tree_all_reduce_us,
     "the board inside a host, two trees between hosts", not_two_levels, two_level_tree_tile_bytes},
    {"two_level_halving_doubling", Collective::all_reduce, two_level_halving_doubling_all_reduce, 1,
     two_level_halving_doubling_all_reduce_us, "the board inside a host, halving-doubling between hosts",
     not_two_levels},
    {"two_level_doubling", Collective::all_reduce, two_level_doubling_all_reduce, 1, two_level_doubling_all_reduce_us,
     "the board inside a host, recursive doubling between hosts", not_two_levels},
    {"leader_doubling", Collective::all_reduce, leader_doubling_all_reduce, 1, leader_doubling_all_reduce_us,
     "the board inside a host, recursive doubling between one rank of each", not_two_levels},
};

std::span<const Algorithm> algorithms() { return algorithm_table; }

const Algorithm* find_algorithm(std::string_view name) {
    for (const Algorithm& row : algorithms())
        if (name == row.name) return &row;
    return nullptr;
}

std::span<const Transport> transports() {
    static const Transport table[] = {shm_transport, tcp_transport};
    return table;
}

}  // namespace weft::registry
