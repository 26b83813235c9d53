// registry.cpp: the tables of algorithms (algorithms/algorithms.def) and transports. A row is the registration.
#include "src/registry.hpp"

#include "algorithms/algorithms.hpp"
#include "transports/shm/shm.hpp"
#include "transports/tcp/tcp.hpp"

namespace weft::internal::registry {

// The traits of a row of algorithms.def.
enum Traits : unsigned {
    no_trait = 0,
    trait_in_rank_order = 1,
    trait_on_demand = 2,
    trait_many_slots = 4,
    trait_tree = 8,
};
static constexpr Algorithm with_traits(Algorithm row, unsigned traits) {
    if (row.refuses == any_layout) row.refuses = nullptr;
    if (row.tile_bytes == largest_tile) row.tile_bytes = nullptr;
    if (traits & trait_in_rank_order) row.sums = Sums::in_rank_order;
    row.on_demand = traits & trait_on_demand;
    row.many_slots = traits & trait_many_slots;
    row.tree = traits & trait_tree;
    return row;
}

static constexpr Algorithm algorithm_table[] = {
#define WEFT_ALGORITHM(name, collective, build, predict_us, refuses, tile_bytes, traits, cost) \
    with_traits({#name, Collective::collective, build, predict_us, cost, refuses, tile_bytes}, traits),
#include "algorithms/algorithms.def"
#undef WEFT_ALGORITHM
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
