// hwloc.hpp: the hwloc library, opened at run time. It describes a machine (this one, or one of a file or a text) as
// plain values: packages, NUMA domains, caches, and PCI devices with their network and block devices.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::hwloc {

enum class ObjectKind : uint8_t {
    machine,
    package,
    numa,
    core,
    thread,
    cache,
    bridge,
    pci,
    network,
    openfabrics,
    device,
    other
};

struct Object {
    ObjectKind kind = ObjectKind::other;
    int parent = -1;     // a parent precedes its children
    int number = -1;     // the operating system's number of a package, NUMA domain or thread
    std::string cpus;    // hardware threads, as "0-3,8"; empty: none, as for devices
    int level = 0;       // of a data or unified cache
    int64_t bytes = 0;   // of a cache or NUMA domain
    std::string bus_id;  // of a PCI device, or a bridge that is one
    unsigned device_class = 0, vendor = 0, device = 0, subsystem_vendor = 0, subsystem_device = 0;
    double link_gbs = 0;  // speed of the link to the parent, raw bits, GB/s; 0: unknown
    std::string name;
    std::vector<std::pair<std::string, std::string>> facts;  // "CPUVendor", "Address"
    // The value of the fact with this name; empty: there is none.
    std::string fact(const std::string& wanted) const;
};

struct HwlocTopology {
    std::vector<Object> objects;  // the first is the machine
};

// `library` as in WEFT_HWLOC_LIBRARY. All three functions are reentrant. They fail if there is no hwloc or if it fails.
Result<HwlocTopology> this_machine(const std::string& library);
// A file that `lstopo machine.xml` wrote. weftInvalidArgument: it is no such file.
Result<HwlocTopology> read_xml(const std::string& library, const std::string& xml);
// A text like "package:2 numa:1 l3:1 core:8 pu:2". weftInvalidArgument: the text is invalid, or the machine too large.
Result<HwlocTopology> read_synthetic(const std::string& library, const std::string& text);

}  // namespace weft::internal::hwloc
