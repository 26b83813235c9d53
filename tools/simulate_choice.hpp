// simulate_choice.hpp: which algorithm Weft would choose for a simulated call.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tools/simulate_scene.hpp"

namespace weft::internal::tools {

struct WeftChoice {
    std::string algorithm;
    std::vector<const Algorithm*> unable;             // of the scene's, those that device memory is not served by
    std::map<const Algorithm*, double> predicted_us;  // of those that predictions decide between
    bool is_able(const Algorithm* row) const { return std::find(unable.begin(), unable.end(), row) == unable.end(); }
};

// By its costs for such ranks, which know nothing of what is slow. weftInvalidUsage: it would serve none, and why.
Result<WeftChoice> weft_choice(const SimulateRequest& request, const Scene& scene);

}  // namespace weft::internal::tools
