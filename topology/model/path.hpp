// path.hpp: the class, bandwidth and latency of a path between two nodes of a graph. A value.
#pragma once
#include <cstdint>
#include <string_view>

#include "topology/model/node.hpp"

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

}  // namespace weft::internal::topology
