// paths.hpp: the path from each node of a graph to each other node: its class as in nvidia-smi and NCCL, its hops, its
// narrowest link and its latency. Of all paths, the nearest class wins, then the widest, then the fewest hops, then the
// lowest latency.
// Devices do not forward, so a path goes only through cpus, PCI switches and NVSwitches. There are two exceptions. NVB
// is NVLink through one GPU to another. PXN, which a caller may ask for, reaches a NIC of the host through another GPU.
#pragma once
#include <string>
#include <vector>

#include "topology/model/link_paths.hpp"

namespace weft::internal::topology {

struct PathOptions {
    bool nvb = true;
    bool pxn = false;                      // also from a GPU to a port and back
    bool net = true;                       // between hosts; searches from every port when Paths is made
    size_t visits_most = size_t(1) << 22;  // of nodes, by the searches from ports; then slow ports are left out
};

// The connected graph must outlive it. Reentrant.
class Paths {
  public:
    explicit Paths(const Graph& graph, PathOptions options = {});
    // To every node. Takes some breadth-first searches of the source's island.
    std::vector<Path> from(int source) const;
    Path between(int source, int target) const { return from(source)[size_t(target)]; }
    // The nodes of that path, with both ends; empty: there is no path.
    std::vector<int> route(int source, int target) const;
    // Limits that applied to an unusually large machine, a sentence each.
    const std::vector<std::string>& notes() const { return notes_; }

  private:
    void find_arrivals();
    void add_arrivals(int port);
    void note_relays();
    void add_nvb(int source, std::vector<Path>& row) const;
    void add_p2c(int source, std::vector<Path>& row) const;
    void add_pxn(int source, std::vector<Path>& row) const;
    void add_net(int source, std::vector<Path>& row) const;
    // The best port to leave the node by.
    int port_for(int source, const std::vector<Path>& row) const;

    const Graph& graph_;
    PathOptions options_;
    LinkPaths links_;
    std::vector<std::vector<int>> ports_;  // of each host
    std::vector<int> arrival_port_;        // for each node: the port of its host that is best for reaching it
    std::vector<Path> arrival_;            // the path from that port
    std::vector<std::string> notes_;
};

}  // namespace weft::internal::topology
