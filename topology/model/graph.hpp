// graph.hpp: one or more machines as a graph: typed nodes, and links with bandwidth, latency and width. Detection and
// the reader of NCCL's topology files fill a graph, merge joins two, and path searches read it.
//
// Statements are kept as given: nodes with their parents in the PCI tree, and links across the tree. `connect` makes
// *links* of them, and may be called again after additions.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/result.hpp"
#include "topology/model/node.hpp"

namespace weft::internal::topology {

// Thread-bound while it is filled, then reentrant. Nodes are numbered in the order of addition, parents before
// children.
class Graph {
  public:
    const std::vector<std::string>& hosts() const { return hosts_; }  // their hashes; empty: unknown
    const std::vector<Node>& nodes() const { return nodes_; }
    const std::vector<Link>& links() const { return links_; }
    const std::vector<Statement>& statements() const { return statements_; }
    const Node& node(int index) const { return nodes_[size_t(index)]; }
    // For adding properties that became known later. Host, parent and bus id must not change.
    Node& change(int index) { return nodes_[size_t(index)]; }

    // The index of the host with this hash; a new one is added.
    Result<int> host(std::string_view hash);
    // For a host whose hash was unknown.
    void name_host(int index, std::string_view hash) { hosts_[size_t(index)] = hash; }
    // The index of the new node. weftInvalidArgument: the bus id or NUMA domain exists already, the parent cannot have
    // such a child, or there are too many nodes.
    Result<int> add(Node node);
    Status state(Statement statement);
    // A link that NCCL's files cannot state, as tests and detection have, kept beside the links of connect().
    Status add_link(Link link);
    // Sets the bandwidth of the links of this kind from one node to another to 0 in that direction.
    void cut(int source, int target, LinkKind kind);
    // Removes the links and, if no node was added after them, the NVSwitches that connect() made.
    void disconnect();

    // -1: none
    int find(int host, std::string_view busid) const;
    int find_cpu(int host, int numaid) const;
    int cpu_above(int node) const;
    std::vector<int> of_kind(NodeKind kind) const;
    int children(int node) const { return children_[size_t(node)]; }  // their number
    // Whether another device of its kind on its host has the same dev, as of the last connect().
    bool shares_dev(int node) const { return sharing_dev_.count(node) > 0; }
    // "gpu 0 (0000:07:00.0)", "port mlx5_0", "cpu 1 of host 2": the name in sentences and tables.
    std::string name(int node) const;

    bool operator==(const Graph& other) const {
        return hosts_ == other.hosts_ && nodes_ == other.nodes_ && statements_ == other.statements_ &&
               links_ == other.links_;
    }

  private:
    friend class GraphConnector;  // connect.cpp
    Result<int> nvswitch_of(int gpu);
    void push(Node node);
    Status push(Link link);

    std::vector<std::string> hosts_;
    std::vector<Node> nodes_;
    std::vector<Statement> statements_;
    std::vector<Link> added_links_;
    std::vector<Link> links_;
    std::unordered_map<std::string, int> by_busid_;  // "host busid", and "host cpu numaid"
    std::vector<int> cpus_;                          // of each host, their number
    std::vector<int> children_, stated_;             // of each node, its numbers of children and statements
    std::set<int> sharing_dev_;
};

}  // namespace weft::internal::topology
