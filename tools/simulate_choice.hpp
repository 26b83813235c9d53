// simulate_choice.hpp: the algorithm that Weft would choose for a simulated call.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tools/simulate_scene.hpp"

namespace weft::internal::tools {

struct WeftChoice {
    std::string algorithm;
    std::vector<const Algorithm*> unable;             // the scene's algorithms that cannot run on device memory
    std::map<const Algorithm*, double> predicted_us;  // the candidates between which predictions decide
    bool is_able(const Algorithm* row) const { return std::find(unable.begin(), unable.end(), row) == unable.end(); }
};

// Chooses by Weft's costs for such ranks; the costs do not include faults.
// weftInvalidUsage: no algorithm can run the call; the message has the reason.
Result<WeftChoice> weft_choice(const SimulateRequest& request, const Scene& scene);

}  // namespace weft::internal::tools
