// uneven_table.hpp: a table (table.hpp) of collectives of uneven parts. Its columns are ranks, type, reduction, lengths
// and positions of the parts, root, placement, and whether the counts are in device memory. The model has every byte of
// each buffer before and after the call, including gaps and margins.
#pragma once
#include "tests/conformance/table.hpp"

namespace weft::internal::test {

inline constexpr Collective uneven_collectives[] = {Collective::all_to_all_v, Collective::gather_v,
                                                    Collective::scatter_v, Collective::all_gather_v,
                                                    Collective::reduce_scatter_v};

struct UnevenCall {
    // Parts of one buffer, one for each rank or the rank's own alone: elements.
    struct Parts {
        std::vector<size_t> counts, places;
        size_t elements = 0;  // of the buffer
    };
    Collective collective = Collective::all_to_all_v;
    int root = -1;  // of a rooted collective
    weftDataType_t type = weftFloat32;
    int op = weftSum;                       // or premul
    bool by_function = false;               // the sum is a C function's, on host memory
    std::vector<std::vector<Bytes>> given;  // by giver and taker
    std::vector<Bytes> scalars;             // by rank; empty unless premul
    // By rank.
    std::vector<Parts> sends, takes;
    std::vector<bool> in_place, counted;         // counted: the counts are in device memory
    size_t send_offset = 0, receive_offset = 0;  // bytes from a line

    int ranks() const { return int(sends.size()); }
    Held input_held(int rank) const { return input_of(collective, rank, root); }
    Held output_held(int rank) const { return output_of(collective, rank, root); }
    // The part that `taker` receives from `giver`; of a reduction, the sum over all givers.
    Bytes taken(int giver, int taker) const;
    std::string text() const;
};

struct UnevenTable {
    enum class Lengths { nothing, equal, some, one_giver, any, one_long };
    enum class Laying { closely, gaps, backwards, shuffled };
    enum class Placement { apart, beside_lines, in_place, in_place_on_some };
    enum Column { ranks, type, op, lengths, laying, root, placement, counted };

    Collective collective;
    std::vector<int> rank_counts;
    bool on_device;  // where counts may be

    std::vector<int> sizes() const;
    UnevenCall call(const Line& line, std::mt19937& random) const;
};

// As that of a Call.
std::string fault_of(const Ranks& ranks, const UnevenCall& call, DeviceBuffer::Kind kind);

}  // namespace weft::internal::test
