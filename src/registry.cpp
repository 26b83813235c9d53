// registry.cpp: the only file that names every algorithm and every transport. A row is the registration.
#include "src/registry.hpp"

#include "algorithms/algorithms.hpp"
#include "transports/shm/shm.hpp"

namespace weft::registry {

static constexpr Algorithm algorithm_table[] = {
    {"one_shot", Collective::all_reduce, one_shot_all_reduce, 1, one_shot_all_reduce_us,
     "everybody reads everything: one wait"},
    {"two_shot", Collective::all_reduce, two_shot_all_reduce, 1, two_shot_all_reduce_us,
     "2(N-1)/N of the buffer in two waits"},
    {"ring", Collective::all_reduce, ring_all_reduce, 1, ring_all_reduce_us, "2(N-1)/N of the buffer in 2(N-1) steps"},
};

std::span<const Algorithm> algorithms() { return algorithm_table; }

const Algorithm* find_algorithm(std::string_view name) {
    for (const Algorithm& row : algorithms())
        if (name == row.name) return &row;
    return nullptr;
}

std::span<const Transport> transports() {
    static const Transport table[] = {shm_transport};
    return table;
}

}  // namespace weft::registry
