// collective.hpp: the semantics of each collective, for the API, schedules, checker and executor. The *whole* of a
// collective is the vector that its largest buffer holds: one part, or a part of `count` elements for each rank, in
// rank order. All ranks use the same positions in the whole: a buffer with only its rank's part holds that part at its
// position.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft::internal {

enum class Collective : uint8_t {
    none,
    all_reduce,
    broadcast,
    reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather,
    scatter,
    barrier,
    // Every rank passes its own counts; messages between two ranks (p2p/exchange.hpp) carry the parts, without a schedule.
    all_to_all_v,
    gather_v,
    scatter_v,
    all_gather_v,
    reduce_scatter_v,
};
// The collectives that schedules implement.
inline constexpr Collective all_collectives[] = {
    Collective::all_reduce, Collective::broadcast,      Collective::reduce,
    Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
    Collective::gather,     Collective::scatter,        Collective::barrier,
};

// The parts of the whole that a rank's buffer holds.
enum class Held : uint8_t { nothing, own, all };

struct CollectiveFacts {
    const char* name;
    bool parted;   // the whole has a part for each rank; otherwise it is one part
    bool reduces;  // the result combines all ranks' contributions
    bool rooted;   // one rank is the root
    bool
        transposes;  // a part's position names its destination in the sender's buffer, and its source in the receiver's
    Held input_of_root, input_of_others;
    Held output_of_root, output_of_others;
};

constexpr CollectiveFacts facts_of(Collective collective) {
    using enum Held;
    switch (collective) {
        case Collective::none: break;
        case Collective::all_reduce: return {"all_reduce", false, true, false, false, all, all, all, all};
        case Collective::broadcast: return {"broadcast", false, false, true, false, all, nothing, all, all};
        case Collective::reduce: return {"reduce", false, true, true, false, all, all, all, nothing};
        case Collective::all_gather: return {"all_gather", true, false, false, false, own, own, all, all};
        case Collective::reduce_scatter: return {"reduce_scatter", true, true, false, false, all, all, own, own};
        case Collective::all_to_all: return {"all_to_all", true, false, false, true, all, all, all, all};
        case Collective::gather: return {"gather", true, false, true, false, own, own, all, nothing};
        case Collective::scatter: return {"scatter", true, false, true, false, all, nothing, own, own};
        // Every rank waits for every rank: an all-gather of tokens.
        case Collective::barrier: return {"barrier", true, false, false, false, own, own, all, all};
        case Collective::all_to_all_v: return {"all_to_all_v", true, false, false, true, all, all, all, all};
        case Collective::gather_v: return {"gather_v", true, false, true, false, own, own, all, nothing};
        case Collective::scatter_v: return {"scatter_v", true, false, true, false, all, nothing, own, own};
        case Collective::reduce_scatter_v: return {"reduce_scatter_v", true, true, false, false, all, all, own, own};
        case Collective::all_gather_v: return {"all_gather_v", true, false, false, false, own, own, all, all};
    }
    return {"nothing", false, false, false, false, nothing, nothing, nothing, nothing};
}

constexpr const char* name_of(Collective collective) { return facts_of(collective).name; }
std::optional<Collective> collective_named(std::string_view name);

// Every rank passes its own counts, so an Operation has none.
constexpr bool uneven(Collective collective) {
    return collective == Collective::all_to_all_v || collective == Collective::gather_v ||
           collective == Collective::scatter_v || collective == Collective::all_gather_v ||
           collective == Collective::reduce_scatter_v;
}

constexpr int parts_of(Collective collective, int ranks) { return facts_of(collective).parted ? ranks : 1; }
constexpr Held input_of(Collective collective, int rank, int root) {
    const CollectiveFacts facts = facts_of(collective);
    return rank == root ? facts.input_of_root : facts.input_of_others;
}
constexpr Held output_of(Collective collective, int rank, int root) {
    const CollectiveFacts facts = facts_of(collective);
    return rank == root ? facts.output_of_root : facts.output_of_others;
}
constexpr bool holds(Held held, int part, int rank) { return held == Held::all || (held == Held::own && part == rank); }
// For a buffer that holds these parts: its length in parts, and the position in the whole where it begins.
constexpr int parts_held(Held held, int parts) { return held == Held::all ? parts : held == Held::own ? 1 : 0; }
constexpr size_t first_held(Held held, int rank, size_t part_bytes) {
    return held == Held::own ? size_t(rank) * part_bytes : 0;
}

}  // namespace weft::internal
