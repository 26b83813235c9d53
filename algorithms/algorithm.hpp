// algorithm.hpp: the interface of an algorithm to the rest of Weft: one row of registry.cpp, or one entry of a user's
// files.
#pragma once
#include <string>
#include <vector>

#include "src/schedule/layout.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal {

struct Parameters {
    int channels = 1;
    int root = -1;  // of a rooted collective
};

// An algorithm from a file (WEFT_ALGO_FILES): complete, proved schedules for one number of ranks and one root.
struct UserAlgorithm {
    std::string name;
    std::string file;
    std::vector<Schedule> schedules;  // by rank

    const char* refusal(const Layout& layout) const;
};

// How a reduction combines the ranks' contributions. in_rank_order: each result is computed at once from the ranks' own
// inputs and rounded once. The checker proves this for each row (tests/schedule), and for a user's algorithm when it is
// read.
enum class Sums : uint8_t { as_they_come, in_rank_order };

struct Algorithm {
    const char* name;  // as in WEFT_ALGO and in logs
    Collective collective;
    Schedule (*build)(const Layout& layout, const Parameters& parameters);  // reentrant, time proportional to its steps
    // Predicted microseconds for a buffer of `bytes` in all. Only comparisons use it, so a constant error is harmless.
    double (*predict_us)(const Layout& layout, const LinkCosts& costs, size_t bytes);
    const char* cost;                                 // the formula in words
    const char* (*refuses)(const Layout&) = nullptr;  // the reason why it does not support a layout; null: it does
    // The tile size that is fastest if smaller tiles than the slots allow are worth it; null: as large as possible.
    size_t (*tile_bytes)(const Layout& layout, const LinkCosts& costs, size_t bytes) = nullptr;
    const UserAlgorithm* of_user = nullptr;  // then build and predict_us are null
    Sums sums = Sums::as_they_come;
    bool on_demand = false;   // only for calls that need sums in rank order, or if WEFT_ALGO names it
    bool many_slots = false;  // needs many slots, which the connections of GPU kernels do not have
    bool tree = false;        // data follows tree edges: predictions with NCCL's constants use those for trees

    const char* refusal(const Layout& layout) const {
        if (of_user) return of_user->refusal(layout);
        return refuses ? refuses(layout) : nullptr;
    }
    // Only for a layout that the algorithm supports.
    Schedule schedule(const Layout& layout, const Parameters& parameters) const {
        return of_user ? of_user->schedules[size_t(layout.rank)] : build(layout, parameters);
    }
    // A user's algorithm is the user's choice: it precedes all others.
    double predicted_us(const Layout& layout, const LinkCosts& costs, size_t bytes) const {
        return of_user ? 0 : predict_us(layout, costs, bytes);
    }
};

// For rows of algorithms.def: an algorithm for every layout; and tiles as large as the slots allow.
inline const char* any_layout(const Layout&) { return nullptr; }
inline size_t largest_tile(const Layout&, const LinkCosts&, size_t) { return 0; }

}  // namespace weft::internal
