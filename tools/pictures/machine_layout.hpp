// machine_layout.hpp: chooses the devices that a picture shows, and their places.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tools/pictures/svg.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::tools {

// Hosts that differ only in names, bus ids and ranks. The first of them is drawn.
struct EqualHosts {
    int host = 0;
    int count = 0;
    size_t nodes = 0;  // of each host
};
std::vector<EqualHosts> alike_hosts(const topology::Graph& graph);

// All links between two nodes, drawn as one line.
struct Joint {
    int source, target;
    topology::LinkKind kind;
    auto operator<=>(const Joint&) const = default;
};
struct Bundle {
    double gbs = 0;
    bool assumed = false;
};

struct DrawnHost {
    int host = 0, count = 0;
    Box box;
    Box bar;           // joins more than two CPUs; empty: no bar
    double floor = 0;  // arcs between GPUs are below it
    std::vector<int> cpus;
};

struct MachineLayout {
    MachineLayout(const topology::Graph& graph, Point at);
    bool is_arc(const Joint& joint) const;  // from GPU to GPU
    // The depth of an arc below the floor.
    double depth_of(const Joint& arc) const;
    const DrawnHost& host_of(int node) const;
    bool drawn(int node) const { return boxes[size_t(node)].width > 0; }

    const topology::Graph& graph;
    std::vector<std::vector<int>> children;
    std::vector<Box> boxes, heads;  // of each node: the whole and its text; empty: not drawn
    std::map<Joint, Bundle> bundles;
    std::vector<DrawnHost> hosts;
    double bottom = 0;

  private:
    void bundle_links(const std::vector<bool>& hosts_drawn);
    void size(int node);
    void place(int node, Point at);
    void place_host(const EqualHosts& group, Point at);
    double place_switches(int host, double floor);
};

}  // namespace weft::internal::tools
