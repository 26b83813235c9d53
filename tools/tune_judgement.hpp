// tune_judgement.hpp: derives a tuning from the times of `weft tune`, and judges how well it chooses.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/selector/tuning.hpp"
#include "tools/tune_ranks.hpp"

namespace weft::internal::tools {

// Ranks that were measured together.
struct Arrangement {
    int ranks = 2, hosts = 1;
    std::vector<TunedTime> times;
    std::optional<bool> apart = {};  // see Tuning::Curve
    const char* transport() const { return hosts == 1 ? "shm" : "tcp"; }
};

// Curves of the times that are not held out, and the constants that fit them best. `here`: from tuning_of_here().
Tuning tuning_of_times(Tuning here, const std::vector<Arrangement>& arrangements);

// Chosen time over best time, less 1, in per cent: the geometric mean over sizes, and the worst.
struct Judged {
    double mean_percent = 0, worst_percent = 0;
    size_t worst_bytes = 0;
    std::string worst_chosen, worst_best;
};
struct Judgement {
    int sizes = 0;
    Judged before, after;  // by the built-in costs, by the tuning
};
// Judges the held-out sizes of one collective, or of all (Collective::none).
Judgement judge(const Tuning& tuning, const Arrangement& arrangement, Collective collective);

// All judgements as a table.
std::string judgement_text(const Tuning& tuning, const std::vector<Arrangement>& arrangements,
                           const std::vector<Collective>& collectives);

}  // namespace weft::internal::tools
