// tune_ranks.hpp: the work of a rank that `weft tune` starts.
// It runs every algorithm of every collective at every size, and rank 0 prints a line for each time.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/base/collective.hpp"
#include "src/base/result.hpp"

namespace weft::internal::tools {

struct TuneWork {
    std::vector<Collective> collectives;
    size_t least_bytes = 8, most_bytes = size_t(64) << 20;
    double seconds = 10;  // about
};

// The next size, from 8 bytes on: eightfold while latency dominates, then fourfold.
constexpr size_t next_tuned_size(size_t bytes) { return bytes * (bytes < 4096 ? 8 : 4); }
struct TunedSize {
    size_t bytes;
    bool held_out;
};
std::vector<TunedSize> tuned_sizes(const TuneWork& work);

// Lines of the output. A cell of the table has the times of all algorithms for one size.
// Held-out sizes are between the others, or repeat the largest. They test predictions and make none.
// At large sizes, an algorithm that is slower than the best by this factor is left out.
inline constexpr double tune_far_behind = 3;

struct TunedTime {
    Collective collective = Collective::none;
    bool held_out = false;
    size_t bytes = 0;  // of the whole
    std::string algorithm;
    double us = 0;

    std::string text() const;
    static bool read(const std::string& line, TunedTime& time);
};

// The line that says whether ranks of one machine were on different NUMA domains.
std::string apart_text(bool apart);
std::optional<bool> read_apart(const std::string& line);

// Runs a rank, which finds the others by the environment. Returns the process's exit status.
int run_tune_rank(const TuneWork& work);

}  // namespace weft::internal::tools
