// machine_layout.hpp: where the devices of machines lie in a picture, and which of them are in it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tools/pictures/svg.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::tools {

// Hosts that are alike but for names, bus ids and ranks. The first of them is drawn.
struct Segment {
    int host = 0;
    int count = 0;
    size_t nodes = 0;  // of each
};
std::vector<Segment> alike_hosts(const topology::Graph& graph);

// Links between the same two nodes, as one.
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
    Box bar;           // that joins its cpus, where there are more than two; empty: none
    double floor = 0;  // below it are arcs between GPUs
    std::vector<int> cpus;
};

struct MachineLayout {
    MachineLayout(const topology::Graph& graph, Point at);
    bool is_arc(const Joint& joint) const;  // from GPU to GPU
    // How far down it reaches.
    double depth_of(const Joint& arc) const;
    const DrawnHost& host_of(int node) const;
    bool drawn(int node) const { return boxes[size_t(node)].width > 0; }

    const topology::Graph& graph;
    std::vector<std::vector<int>> children;
    std::vector<Box> boxes, heads;  // of each node, all of it and what names it; empty: it is not drawn
    std::map<Joint, Bundle> bundles;
    std::vector<DrawnHost> hosts;
    double bottom = 0;

  private:
    void bundle_links(const std::vector<bool>& hosts_drawn);
    void size(int node);
    void place(int node, Point at);
    void place_host(const Segment& group, Point at);
    double place_switches(int host, double floor);
};

}  // namespace weft::internal::tools
