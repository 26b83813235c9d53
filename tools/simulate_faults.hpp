// simulate_faults.hpp: what is wrong with the machines of a scene, and the job as it goes on with that.
#pragma once
#include <optional>

#include "src/simulator/degraded_fabric.hpp"
#include "tools/simulate_scene.hpp"

namespace weft::internal::tools {

// What is slow and which links are gone; names of links are the fabric's.
Result<Faults> damage_of(const SimulateRequest& request, const Scene& scene, const Fabric& fabric);

// The job that is made anew: without the hosts that failed, its ranks numbered again; or with rings that keep to the links
// that are left. None: it would be the same. `scene` must outlive it.
Result<std::optional<Scene>> scene_after(const SimulateRequest& request, const Scene& scene);

}  // namespace weft::internal::tools
