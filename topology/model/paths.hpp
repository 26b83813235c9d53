// paths.hpp: the path from each node of a graph to each other node: its class as in nvidia-smi and NCCL, its hops, its
// narrowest link and its latency. Of all paths, the nearest class wins, then the widest, then the fewest hops, then the
// lowest latency.
// Devices do not forward, so a path goes only through cpus, PCI switches and NVSwitches. There are two exceptions. NVB
// is NVLink through one GPU to another. PXN, which a caller may ask for, reaches a NIC of the host through another GPU.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::topology {

// Nearest first.
enum class PathClass : uint8_t {
    loc,   // the node itself, or within a device
    nvl,   // NVLink, through NVSwitches too
    nvb,   // NVLink through one other GPU
    c2c,   // NVLink-C2C between a GPU and its cpu
    pix,   // one PCI switch at most
    pxb,   // several PCI switches, no cpu
    p2c,   // between a GPU and a NIC: C2C to the GPU's cpu, and PCI from there
    pxn,   // NVLink to another GPU, and from there to its NIC by PIX or PXB
    phb,   // through a cpu (PCI host bridge)
    sys,   // from cpu to cpu, across NUMA domains
    net,   // over the network, from any port of one host to any port of the other
    none,  // no path
};
const char* name_of(PathClass path_class);  // "PIX"; of none "-"
// none: no class has this name.
PathClass path_class_named(std::string_view name);

// The nearest class that a path over this link can have. `one` and `other` are the kinds of its ends.
PathClass class_of(const Link& link, NodeKind one, NodeKind other);

struct Path {
    PathClass path_class = PathClass::none;
    int hops = 0;              // links; parallel ones count once
    double bandwidth_gbs = 0;  // of the narrowest link, with its parallel links
    double latency_us = 0;     // one way
    int through = -1;          // the GPU that forwards, for NVB and PXN
    bool assumed = false;      // the bandwidth of one of its links depends on something unknown
    bool operator==(const Path&) const = default;
};

struct PathOptions {
    bool nvb = true;
    bool pxn = false;  // also from a GPU to a port and back
    bool net = true;   // between hosts; searches from every port when Paths is made
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
    struct PathEdge {
        int target;  // index in the island
        LinkKind kind;
        PathClass path_class;
        double bandwidth_gbs, latency_us;
        bool assumed;
    };
    // How a search reaches a node: the path with the fewest hops over links that are near and wide enough.
    struct ReachedNode {
        int hops = -1;  // not reached
        int previous = -1;
        double latency_us = 0;
        bool assumed = false;
    };
    using Row = std::vector<ReachedNode>;  // of the source and of forwarding nodes, by index in the island
    void find_islands();
    void add_edges();
    void add_ends();
    void find_arrivals();
    void add_arrivals(int port);
    void note_relays();
    const std::vector<int>& island_of(int node) const { return islands_[size_t(island_[size_t(node)])]; }
    bool forwards(int node) const;
    // The links that a search uses. `c2c`: at GPUs only those of NVLink-C2C.
    struct PathSearch {
        PathClass worst;
        double bandwidth_gbs;
        bool c2c;
    };
    bool allows(const PathSearch& search, const std::vector<int>& island, int node, const PathEdge& edge) const;
    Row layers(int source, const PathSearch& search) const;
    ReachedNode reached(const Row& row, int node, const PathSearch& search) const;
    double width_of(int source, double bandwidth_gbs) const;
    // Only over links of the source's island, by index in it. none: a farther path too.
    std::vector<Path> direct(int source, PathClass farthest = PathClass::sys, bool c2c = false) const;
    std::vector<int> direct_route(int source, int target, bool c2c = false) const;
    void add_nvb(int source, std::vector<Path>& row) const;
    void add_p2c(int source, std::vector<Path>& row) const;
    void add_pxn(int source, std::vector<Path>& row) const;
    void add_net(int source, std::vector<Path>& row) const;
    // The best port to leave the node by.
    int port_for(int source, const std::vector<Path>& row) const;

    const Graph& graph_;
    PathOptions options_;
    // Nodes that links join: one host, or all hosts of an NVLink domain. The cost of a search depends only on its
    // island.
    std::vector<std::vector<int>> islands_;     // their nodes, ascending
    std::vector<int> island_, place_;           // of each node: its island, and its index there
    std::vector<std::vector<PathEdge>> edges_;  // of each node
    std::vector<std::vector<PathEdge>> into_;   // of each end, from indices of its island
    bool has_c2c_ = false;
    std::vector<double> widths_;           // bandwidths of edges between forwarding nodes, ascending
    std::vector<std::vector<int>> ports_;  // of each host
    std::vector<int> arrival_port_;        // for each node: the port of its host that is best for reaching it
    std::vector<Path> arrival_;            // the path from that port
    std::vector<std::string> notes_;
};

}  // namespace weft::internal::topology
