// node.hpp: the nodes, statements and links of a graph, as plain values.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::internal::topology {

// Limits for files. A rack of GB200 has about 500 nodes.
constexpr int nodes_most = 65'536;
constexpr int links_most = 1 << 20;
constexpr int hosts_most = 4'096;
constexpr int cpus_per_host_most = 128;  // NUMA domains, each linked with each other one
constexpr int ports_per_nic_most = 256;
constexpr size_t parts_most = 64;
constexpr int statements_per_node_most = 1'024;
constexpr int nvlinks_most = 256;  // of one statement; a B200 has 18 in all

constexpr int unknown = -1;  // a number that is not stated; an empty text is unknown too

enum class NodeKind : uint8_t { cpu, pci, gpu, nic, port, nvswitch };
const char* name_of(NodeKind kind);

// `local`: within one device, as between the halves of a PCI switch (pcilink). `net`: from a NIC to its port.
enum class LinkKind : uint8_t { local, nvlink, c2c, pci, sys, net };
const char* name_of(LinkKind kind);

// The line in a file, 0: none. Facts with different lines are equal.
struct SourceLine {
    int line = 0;
    bool operator==(const SourceLine&) const { return true; }
};

// Equal caches: `count` of them belong to a NUMA domain, or are shared with others.
struct Cache {
    int level = 0;
    int64_t bytes = 0;  // of each
    int threads = 0;    // hardware threads that share one cache
    int count = 0;
    bool operator==(const Cache&) const = default;
};
constexpr size_t caches_most = 16;  // kinds of caches in a domain

// A NUMA domain, or a package within one.
struct Cpu {
    int numaid = unknown;
    std::string affinity;   // mask of its hardware threads in hexadecimal, 32 bits a group: "ffff0000,0000ffff"
    std::string allowed;    // those that this process may run on, where a container has a part; "0": none
    int package = unknown;  // number in the operating system
    int cores = unknown;    // each with one or more hardware threads
    std::vector<Cache> caches;
    std::string arch, vendor;  // "x86_64", "GenuineIntel"
    int family = unknown, model = unknown;
    bool operator==(const Cpu&) const = default;
};

// The known properties of a PCI device and of the link above it.
struct Pci {
    std::string device_class;  // "0x030200"
    std::string vendor, device, subsystem_vendor, subsystem_device;
    std::string link_speed;    // "16.0 GT/s PCIe"
    int link_width = unknown;  // lanes
    std::string virtual_of;    // bus id of the device to which this virtual function belongs
    bool operator==(const Pci&) const = default;
};

// By its class: gpu, nic or pci. A VGA display is a GPU only if its maker makes GPUs, because servers have displays for
// consoles.
NodeKind kind_of(const Pci& pci);

struct Gpu {
    int dev = unknown;   // CUDA's or NVML's index
    int sm = unknown;    // compute capability, 90: 9.0
    int rank = unknown;  // in the communicator
    int gdr = unknown;   // GPUDirect RDMA: 0, 1
    int keep = unknown;
    int mlopart = unknown;  // index of this part of a partitioned GPU
    std::string gcn;        // architecture of an AMD GPU, as RCCL writes it: "gfx942"
    std::string domain;     // name of the fabric of an NVLink domain of several hosts; empty: the host's own
    bool operator==(const Gpu&) const = default;
};

// A port of a NIC; NCCL calls it net.
struct Port {
    std::string name;      // "mlx5_0"
    int dev = unknown;     // index among the ports of its host
    int speed = unknown;   // Mb/s
    int number = unknown;  // number of the port on its device, from 1
    std::string guid;
    double latency_us = unknown;
    int maxconn = unknown, gdr = unknown, coll = unknown, keep = unknown;
    std::string interface;   // of the operating system, "eth0", where `name` is an RDMA device's
    std::string link_layer;  // "InfiniBand", "Ethernet"
    std::string gid;         // the address of the port for other hosts
    bool operator==(const Port&) const = default;
};

struct Node {
    NodeKind kind = NodeKind::pci;
    int host = 0;          // index; -1: an NVSwitch that several hosts share
    int parent = unknown;  // in the tree cpu > pci > ... > gpu or nic > port; cpus and NVSwitches have none
    std::string busid;     // of pci, gpu, nic: normal_busid(); unique on its host
    Cpu cpu;
    Pci pci;
    Gpu gpu;  // of an NVSwitch only the domain
    // Further parts of a partitioned GPU (MIG), each with its own index and rank; paths treat them as one.
    std::vector<Gpu> parts;
    Port port;
    SourceLine source_line;
    bool operator==(const Node&) const = default;
};

// A link across the tree, as stated by one of its ends.
struct Statement {
    LinkKind kind = LinkKind::nvlink;  // nvlink, c2c (to the GPU's own cpu), local (pcilink)
    int source = 0;                    // node
    std::string target;                // bus id; empty for c2c
    std::string target_class;          // of an nvlink: "0x030200" a GPU, "0x068000" an NVSwitch, "0x068001" the cpu
    int count = 1;
    int bandwidth_mbs = 0;  // of each C2C link, MB/s in each direction
    SourceLine source_line;
    bool operator==(const Statement&) const = default;
};

struct Link {
    LinkKind kind = LinkKind::pci;
    int source = 0, target = 0;  // nodes; for links of the tree the source is the child
    bool both_ways = true;       // false: only from source to target
    int count = 1;               // NVLinks or C2C links; lanes of PCI
    double bandwidth_gbs = 0;    // usable, in each direction, of all `count` together, 10^9 bytes a second
    double latency_us = 0;       // one way over the idle link
    bool assumed = false;        // the bandwidth depends on something unknown
    std::string plane;           // to an NVSwitch: the bus id of the switch at the end of this link
    bool operator==(const Link&) const = default;
};

// Lower case, "0000:c1:00.0". A domain of eight digits, as in NVML, becomes four where possible. Empty: not a bus id.
std::string normal_busid(std::string_view text);

}  // namespace weft::internal::topology
