// graph.hpp: a machine, or several, as a graph: typed nodes, and links with bandwidth, latency and width. The reader of
// NCCL's topology files and whoever detects devices fill it, merge joins two; path searches read it.
//
// What is *stated* (nodes with their parents in the PCI tree, statements of links that lie across the tree) is kept as
// it was said; *links* are made of it by `connect`, which may be called again when something has been added.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::topology {

// Bounds of what a file may ask for: a rack of GB200 has some 500 nodes.
constexpr int nodes_most = 65'536;
constexpr int links_most = 1 << 20;
constexpr int hosts_most = 4'096;
constexpr int cpus_per_host_most = 128;  // NUMA domains; all are joined with all
constexpr int ports_per_nic_most = 256;
constexpr size_t parts_most = 64;
constexpr int statements_per_node_most = 1'024;
constexpr int nvlinks_most = 256;  // of one statement; a B200 has 18 in all

constexpr int unknown = -1;  // of a number that nobody has stated; an empty text is unknown, too

enum class NodeKind : uint8_t { cpu, pci, gpu, nic, port, nvswitch };
const char* name_of(NodeKind kind);

// `local`: within one device, as between the halves of a PCI switch (pcilink). `net`: from a NIC to its port.
enum class LinkKind : uint8_t { local, nvlink, c2c, pci, sys, net };
const char* name_of(LinkKind kind);

// The line of the file it stood in, 0: none. The same fact is the same wherever it stands.
struct SourceLine {
    int line = 0;
    bool operator==(const SourceLine&) const { return true; }
};

// Caches that are alike: `count` of them are a NUMA domain's, or shared with others.
struct Cache {
    int level = 0;
    int64_t bytes = 0;  // of each
    int threads = 0;    // hardware threads that share one
    int count = 0;
    bool operator==(const Cache&) const = default;
};
constexpr size_t caches_most = 16;  // kinds of them in a domain

// A NUMA domain, or a package of one.
struct Cpu {
    int numaid = unknown;
    std::string affinity;   // mask of its hardware threads in hexadecimal, 32 bits a group: "ffff0000,0000ffff"
    std::string allowed;    // those that this process may run on, where a container has a part; "0": none
    int package = unknown;  // the operating system's number
    int cores = unknown;    // each of one or more hardware threads
    std::vector<Cache> caches;
    std::string arch, vendor;  // "x86_64", "GenuineIntel"
    int family = unknown, model = unknown;
    bool operator==(const Cpu&) const = default;
};

// What is known of a PCI device, and of the link above it.
struct Pci {
    std::string device_class;  // "0x030200"
    std::string vendor, device, subsystem_vendor, subsystem_device;
    std::string link_speed;    // "16.0 GT/s PCIe"
    int link_width = unknown;  // lanes
    std::string virtual_of;    // bus id of the device whose virtual function it is
    bool operator==(const Pci&) const = default;
};

// By its class: gpu, nic or pci. A VGA display is a GPU only if a maker of GPUs is known to have made it: servers have
// displays for consoles.
NodeKind kind_of(const Pci& pci);

struct Gpu {
    int dev = unknown;   // CUDA's or NVML's index
    int sm = unknown;    // compute capability, 90: 9.0
    int rank = unknown;  // in the communicator
    int gdr = unknown;   // GPUDirect RDMA: 0, 1
    int keep = unknown;
    int mlopart = unknown;  // index of this part of a divided GPU
    std::string gcn;        // architecture of an AMD GPU, as RCCL writes it: "gfx942"
    std::string domain;     // NVLink domain of several hosts, by the name of its fabric; empty: the host's own
    bool operator==(const Gpu&) const = default;
};

// A port of a NIC, which NCCL calls net.
struct Port {
    std::string name;      // "mlx5_0"
    int dev = unknown;     // index among the host's
    int speed = unknown;   // Mb/s
    int number = unknown;  // of the port on its device, from 1
    std::string guid;
    double latency_us = unknown;
    int maxconn = unknown, gdr = unknown, coll = unknown, keep = unknown;
    std::string interface;   // of the operating system, "eth0", where `name` is an RDMA device's
    std::string link_layer;  // "InfiniBand", "Ethernet"
    std::string gid;         // by which others reach it
    bool operator==(const Port&) const = default;
};

struct Node {
    NodeKind kind = NodeKind::pci;
    int host = 0;          // index; -1: an NVSwitch that several hosts share
    int parent = unknown;  // in the tree cpu > pci > ... > gpu or nic > port; none of cpus and NVSwitches
    std::string busid;     // of pci, gpu, nic: normal_busid(); unique on its host
    Cpu cpu;
    Pci pci;
    Gpu gpu;  // of an NVSwitch: the domain alone
    // Of a GPU that is divided (MIG), further parts, each with an index and a rank of its own; paths take it for one.
    std::vector<Gpu> parts;
    Port port;
    SourceLine source_line;
    bool operator==(const Node&) const = default;
};

// A link across the tree, as one of its ends states it.
struct Statement {
    LinkKind kind = LinkKind::nvlink;  // nvlink, c2c (to the GPU's own cpu), local (pcilink)
    int source = 0;                    // node
    std::string target;                // bus id; of a c2c empty
    std::string target_class;          // of an nvlink: "0x030200" a GPU, "0x068000" an NVSwitch, "0x068001" the cpu
    int count = 1;
    int bandwidth_mbs = 0;  // of each of a c2c's, MB/s each way
    SourceLine source_line;
    bool operator==(const Statement&) const = default;
};

struct Link {
    LinkKind kind = LinkKind::pci;
    int source = 0, target = 0;  // nodes; of the tree's links the source is the child
    bool both_ways = true;       // else from source to target only
    int count = 1;               // NVLinks or C2C links; lanes of PCI
    double bandwidth_gbs = 0;    // usable, each way, of all `count` together, 10^9 bytes a second
    double latency_us = 0;       // one way, of an unloaded link
    bool assumed = false;        // the bandwidth rests on something unknown
    std::string plane;           // to an NVSwitch: the bus id of the one that this link ends at
    bool operator==(const Link&) const = default;
};

// Lower case, "0000:c1:00.0"; a domain of eight digits as NVML writes it becomes four where it can. Empty: not a bus id.
std::string normal_busid(std::string_view text);

// Thread-bound while it is filled, then reentrant. Nodes are numbered in the order in which they were added, parents
// before their children.
class Graph {
  public:
    const std::vector<std::string>& hosts() const { return hosts_; }  // their hashes; empty: unknown
    const std::vector<Node>& nodes() const { return nodes_; }
    const std::vector<Link>& links() const { return links_; }
    const std::vector<Statement>& statements() const { return statements_; }
    const Node& node(int index) const { return nodes_[size_t(index)]; }
    // To fill in what was not known when it was added; not its host, parent and bus id.
    Node& change(int index) { return nodes_[size_t(index)]; }

    // The index of the host with this hash, which is added if it is new.
    Result<int> host(std::string_view hash);
    // Of a host whose hash was not known.
    void name_host(int index, std::string_view hash) { hosts_[size_t(index)] = hash; }
    // The new node's index. weftInvalidArgument: its bus id or NUMA domain is there already, a parent that cannot have
    // such a child, too many.
    Result<int> add(Node node);
    Status state(Statement statement);
    // A link that is none of NCCL's files' (tests and detectors have such), kept beside those that are made.
    Status add_link(Link link);
    // Makes the links: those of the tree, of all cpus of a host with each other, and of the statements; NVSwitch nodes
    // where statements lead to one. If a graph of several hosts states no domain, all its NVSwitches are one, as in
    // NCCL: it dumps several hosts only if they are of one NVLink domain. What is left out or assumed against a
    // statement is said in `notes`, a sentence each. weftInvalidArgument: a rank twice.
    Status connect(std::vector<std::string>& notes);

    // Of the links that were made: those of the kind from one node to another carry no more that way.
    void cut(int source, int target, LinkKind kind);
    // Back to what was stated: forgets the links and, if nothing was added behind them, the NVSwitches that were made.
    void disconnect();

    // -1: none
    int find(int host, std::string_view busid) const;
    int find_cpu(int host, int numaid) const;
    int cpu_above(int node) const;
    std::vector<int> of_kind(NodeKind kind) const;
    int children(int node) const { return children_[size_t(node)]; }  // how many
    // Whether another device of its kind on its host has its dev; as of the last connect().
    bool shares_dev(int node) const { return sharing_dev_.count(node) > 0; }
    // "gpu 0 (0000:07:00.0)", "port mlx5_0", "cpu 1 of host 2": as sentences and tables name it.
    std::string name(int node) const;

    bool operator==(const Graph& other) const {
        return hosts_ == other.hosts_ && nodes_ == other.nodes_ && statements_ == other.statements_ &&
               links_ == other.links_;
    }

  private:
    Status check_indices(std::vector<std::string>& notes);
    Status link_statements(std::vector<std::string>& notes);
    std::string nvswitch_key(int host, const std::string& domain) const;
    int nvswitch_of(int gpu);
    void push(Node node);
    Status push(Link link);

    std::vector<std::string> hosts_;
    std::vector<Node> nodes_;
    std::vector<Statement> statements_;
    std::vector<Link> added_links_;
    std::vector<Link> links_;
    std::unordered_map<std::string, int> by_busid_;  // "host busid", and "host cpu numaid"
    std::vector<int> cpus_;                          // of each host, how many
    std::vector<int> children_, stated_;             // of each node, how many nodes and statements
    std::set<int> sharing_dev_;
};

}  // namespace weft::internal::topology
