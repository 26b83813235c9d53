// paths.hpp: the way from each node of a graph to each other one: how near it is, in the classes that nvidia-smi and
// NCCL tell, its hops, its narrowest link, its latency. Of all ways it is the one of the nearest class; of those the
// widest; of those the one with the fewest hops; of those the quickest.
// Devices do not forward: a way goes through cpus, PCI switches and NVSwitches only, except NVB, NVLink through one GPU
// to another, and, where it is asked for, PXN, to a NIC of the host through another of its GPUs.
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
    phb,   // a cpu (PCI host bridge)
    sys,   // from cpu to cpu, across NUMA domains
    net,   // over the network, from any port of one host to any of the other
    none,  // no way
};
const char* name_of(PathClass path_class);  // "PIX"; of none "-"
// none: there is no such class.
PathClass path_class_named(std::string_view name);

// What a path over this link has at least; `one` and `other` are the kinds of its ends.
PathClass class_of(const Link& link, NodeKind one, NodeKind other);

struct Path {
    PathClass path_class = PathClass::none;
    int hops = 0;              // links; parallel ones are one
    double bandwidth_gbs = 0;  // of the narrowest, parallel links together
    double latency_us = 0;     // one way
    int through = -1;          // the GPU that forwards, of NVB and PXN
    bool assumed = false;      // the bandwidth of a link on it rests on something unknown
    bool operator==(const Path&) const = default;
};

struct PathOptions {
    bool nvb = true;
    bool pxn = false;  // from a GPU to a port and back
    bool net = true;   // between hosts; searches from every port when Paths is made
};

// The graph, connected, must outlive it. Reentrant.
class Paths {
  public:
    explicit Paths(const Graph& graph, PathOptions options = {});
    // To every node. Time: a few breadth-first searches of what links join with it.
    std::vector<Path> from(int source) const;
    Path between(int source, int target) const { return from(source)[size_t(target)]; }
    // The nodes of that path, both ends included; empty: there is none.
    std::vector<int> route(int source, int target) const;
    // What was left out of machines that are larger than any that is known, a sentence each.
    const std::vector<std::string>& notes() const { return notes_; }

  private:
    struct PathEdge {
        int target;  // its place in the island
        LinkKind kind;
        PathClass path_class;
        double bandwidth_gbs, latency_us;
        bool assumed;
    };
    // As the way with the fewest hops over links that are near and wide enough reaches a node.
    struct ReachedNode {
        int hops = -1;  // not at all
        int previous = -1;
        double latency_us = 0;
        bool assumed = false;
    };
    using Row = std::vector<ReachedNode>;  // of the source and what forwards, by place in the island
    void find_islands();
    void add_edges();
    void add_ends();
    void find_arrivals();
    void add_arrivals(int port);
    void note_relays();
    const std::vector<int>& island_of(int node) const { return islands_[size_t(island_[size_t(node)])]; }
    bool forwards(int node) const;
    // The links that a search takes. `c2c`: at GPUs those of NVLink-C2C alone.
    struct PathSearch {
        PathClass worst;
        double bandwidth_gbs;
        bool c2c;
    };
    bool allows(const PathSearch& search, const std::vector<int>& island, int node, const PathEdge& edge) const;
    Row layers(int source, const PathSearch& search) const;
    ReachedNode reached(const Row& row, int node, const PathSearch& search) const;
    double width_of(int source, double bandwidth_gbs) const;
    // By links alone, of the source's island, by places in it; none: what is farther, too.
    std::vector<Path> direct(int source, PathClass farthest = PathClass::sys, bool c2c = false) const;
    std::vector<int> direct_route(int source, int target, bool c2c = false) const;
    void add_nvb(int source, std::vector<Path>& row) const;
    void add_p2c(int source, std::vector<Path>& row) const;
    void add_pxn(int source, std::vector<Path>& row) const;
    void add_net(int source, std::vector<Path>& row) const;
    // The port by which the node is best left.
    int port_for(int source, const std::vector<Path>& row) const;

    const Graph& graph_;
    PathOptions options_;
    // What links join: one host, or all hosts of an NVLink domain. A search costs as much as its island.
    std::vector<std::vector<int>> islands_;     // their nodes, ascending
    std::vector<int> island_, place_;           // of each node, and where in it
    std::vector<std::vector<PathEdge>> edges_;  // of each node
    std::vector<std::vector<PathEdge>> into_;   // of each end, from places in its island
    bool has_c2c_ = false;
    std::vector<double> widths_;           // of edges between nodes that forward, ascending
    std::vector<std::vector<int>> ports_;  // of each host
    std::vector<int> arrival_port_;        // for each node: by which port of its host it is best reached
    std::vector<Path> arrival_;            // from there
    std::vector<std::string> notes_;
};

}  // namespace weft::internal::topology
