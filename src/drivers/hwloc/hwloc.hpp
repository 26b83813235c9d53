// hwloc.hpp: the hwloc library, opened at run time: a machine's packages, NUMA domains, caches, PCI devices and what
// serves them, as plain values; this machine, or one that a file or a string describes.
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
    int parent = -1;     // parents stand before their children
    int number = -1;     // the operating system's, of packages, NUMA domains, threads
    std::string cpus;    // "0-3,8": hardware threads; empty: none, as of devices
    int level = 0;       // of data and unified caches
    int64_t bytes = 0;   // of caches and NUMA domains
    std::string bus_id;  // of pci, and of bridges that are PCI devices
    unsigned device_class = 0, vendor = 0, device = 0, subsystem_vendor = 0, subsystem_device = 0;
    double link_gbs = 0;  // of the link above it as it runs, raw bits, GB/s; 0: unknown
    std::string name;
    std::vector<std::pair<std::string, std::string>> facts;  // "CPUVendor", "Address"
    // Empty: it has none of that name.
    std::string fact(const std::string& wanted) const;
};

struct HwlocTopology {
    std::vector<Object> objects;  // the first is the machine
};

// `library` as in WEFT_HWLOC_LIBRARY. All three are reentrant. Errors: there is no hwloc, or it refuses.
Result<HwlocTopology> this_machine(const std::string& library);
// What `lstopo machine.xml` writes. weftInvalidArgument: it is no such file.
Result<HwlocTopology> read_xml(const std::string& library, const std::string& xml);
// "package:2 numa:1 l3:1 core:8 pu:2". weftInvalidArgument: it is no such text, or of too large a machine.
Result<HwlocTopology> read_synthetic(const std::string& library, const std::string& text);

}  // namespace weft::internal::hwloc
