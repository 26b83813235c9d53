// tune_ranks.hpp: what each rank does that `weft tune` starts: it runs every algorithm of every collective at every size,
// and rank 0 prints what they took, a line for each.
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

// The size after this one, from 8 bytes on: eightfold while it is the ranks' meeting that takes the time, then fourfold.
constexpr size_t next_tuned_size(size_t bytes) { return bytes * (bytes < 4096 ? 8 : 4); }
struct TunedSize {
    size_t bytes;
    bool held_out;
};
std::vector<TunedSize> tuned_sizes(const TuneWork& work);

// Lines of the output. A cell of the table is what all algorithms took for one size. Those that are held out lie between
// the others, or are the largest once more, and make no predictions: they tell how good these are.
// Who took so many times the best at a size is left out where sizes are large.
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

// A line of its own: whether ranks of one machine sat on different NUMA domains.
std::string apart_text(bool apart);
std::optional<bool> read_apart(const std::string& line);

// The ranks find each other by the environment. The process's exit status.
int run_tune_rank(const TuneWork& work);

}  // namespace weft::internal::tools
