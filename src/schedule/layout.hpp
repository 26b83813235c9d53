// layout.hpp: the ranks as an algorithm sees them, and what moving bytes between them costs. Values; agreed by all ranks.
#pragma once
#include <cstddef>

namespace weft {

struct Ring {
    int position;  // of this rank on the ring
    int previous;  // rank
    int next;      // rank
};

// One host so far: rings in rank order.
struct Layout {
    int ranks = 1;
    int rank = 0;
    Ring ring(int channel) const {
        (void)channel;
        return {rank, (rank + ranks - 1) % ranks, (rank + 1) % ranks};
    }
};

// Costs of the links between the ranks, microseconds and microseconds a byte; facts of a machine class, never measured at init.
struct LinkCosts {
    int ranks_per_core = 1;       // rounded up
    double signal_us = 0.12;      // a flag from one rank seen by another, both running
    double switch_us = 1.1;       // between two ranks of one core
    double cached_us_per_byte = 1 / 30e3;   // copy or reduce one stream, data in cache
    double memory_us_per_byte = 1 / 5e3;    // the same from and to memory
    size_t cache_bytes = 1 << 20;           // working set of a rank up to which `cached` holds
};

}  // namespace weft
