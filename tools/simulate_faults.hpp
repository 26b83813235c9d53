// simulate_faults.hpp: the faults of a scene's machines, and the job that continues with them.
#pragma once
#include <optional>

#include "src/simulator/degraded_fabric.hpp"
#include "tools/simulate_scene.hpp"

namespace weft::internal::tools {

// Slow parts and failed links. The fabric defines the names of links.
Result<Faults> damage_of(const SimulateRequest& request, const Scene& scene, const Fabric& fabric);

// The job after the faults: without failed hosts and with new rank numbers, or with rings that avoid failed links.
// None: the job would not change. `scene` must outlive the result.
Result<std::optional<Scene>> scene_after(const SimulateRequest& request, const Scene& scene);

}  // namespace weft::internal::tools
