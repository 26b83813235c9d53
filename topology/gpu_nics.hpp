// gpu_nics.hpp: how far network cards are from a GPU whose memory they would access, and how far they may be.
#pragma once
#include <span>
#include <string>

#include "src/drivers/verbs/settings.hpp"
#include "topology/model/graph.hpp"
#include "topology/model/path.hpp"

namespace weft::internal::topology {

// The farthest class of paths that the level admits. NVLink-C2C and then PCI is as good as a switch, because no traffic
// passes the processor's memory.
PathClass farthest(verbs::GdrLevel level);

struct GpuNics {
    PathClass path_class = PathClass::none;  // to the farthest of the cards; none: no path is known
    bool c2c = false;                        // the GPU has NVLink-C2C to its processor
    // Whether data passes PCI switches only, while flags of the processor may take another way.
    bool beside_c2c() const { return c2c && path_class <= PathClass::pxb; }
};
// `gpu`: its bus id. `nics`: names as in /sys (mlx5_0), or bus ids; unknown ones do not count. A pure function.
GpuNics nics_of_gpu(const Graph& graph, const std::string& gpu, std::span<const std::string> nics);

}  // namespace weft::internal::topology
