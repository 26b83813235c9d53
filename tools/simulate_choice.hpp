// simulate_choice.hpp: which algorithm Weft would choose for a simulated call.
#pragma once
#include <string>

#include "tools/simulate_scene.hpp"

namespace weft::tools {

// By its costs for such ranks, which know nothing of what is slow. weftInvalidUsage: it would serve none, and why.
Result<std::string> weft_choice(const SimulateRequest& request, const Scene& scene);

}  // namespace weft::tools
