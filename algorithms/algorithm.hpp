// algorithm.hpp: what the rest of Weft knows of an algorithm: one row of registry.cpp, or of a user's files.
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

// From a file (WEFT_ALGO_FILES): schedules as they stand, proved, for one number of ranks and one root.
struct UserAlgorithm {
    std::string name;
    std::string file;
    std::vector<Schedule> schedules;  // by rank

    const char* refusal(const Layout& layout) const;
};

// How contributions are combined, where the collective reduces. In rank order: each result at once, of what the ranks
// gave themselves, and rounded once; proved by the checker for each row (tests/schedule), of a user's when it is read.
enum class Sums : uint8_t { as_they_come, in_rank_order };

struct Algorithm {
    const char* name;  // as in WEFT_ALGO and in logs
    Collective collective;
    Schedule (*build)(const Layout& layout, const Parameters& parameters);  // reentrant, time proportional to its steps
    // Predicted microseconds for a whole of `bytes`; used to compare, so a constant error in all is harmless.
    double (*predict_us)(const Layout& layout, const LinkCosts& costs, size_t bytes);
    const char* cost;                                 // in words
    const char* (*refuses)(const Layout&) = nullptr;  // why it cannot serve such a layout; null: it can
    // The tile at which it expects to be fastest, where smaller ones than its slots allow pay; null: as large as may
    // be.
    size_t (*tile_bytes)(const Layout& layout, const LinkCosts& costs, size_t bytes) = nullptr;
    const UserAlgorithm* of_user = nullptr;  // then build and predict_us are null
    Sums sums = Sums::as_they_come;
    bool on_demand = false;   // for calls that want their sums in rank order, or where WEFT_ALGO names it
    bool many_slots = false;  // is nothing without them, which kernels' connections do not have
    bool tree = false;        // bytes go along branches: predictions with NCCL's constants take those for trees

    const char* refusal(const Layout& layout) const {
        if (of_user) return of_user->refusal(layout);
        return refuses ? refuses(layout) : nullptr;
    }
    // Of a layout that it does not refuse.
    Schedule schedule(const Layout& layout, const Parameters& parameters) const {
        return of_user ? of_user->schedules[size_t(layout.rank)] : build(layout, parameters);
    }
    // A user's is what the user wants: before all others.
    double predicted_us(const Layout& layout, const LinkCosts& costs, size_t bytes) const {
        return of_user ? 0 : predict_us(layout, costs, bytes);
    }
};

}  // namespace weft::internal
