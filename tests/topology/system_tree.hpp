// system_tree.hpp: a made-up /sys and /proc for what detects machines.
#pragma once
#include <map>
#include <string>

#include "tests/folder.hpp"
#include "topology/detect/discover.hpp"

namespace weft::internal::test {

class SystemTree {
  public:
    // `name` from the root: "sys/class/net/eth0/speed".
    void file(const std::string& name, const std::string& text);
    // To a name from the root.
    void link(const std::string& name, const std::string& target);
    void remove(const std::string& name);

    // Processors and their caches: `domains` of them with a package each, of cores with two hardware threads.
    void processors(int domains, int cores_each);
    // A PCI device by its way from the host bridge: "pci0000:00/0000:00:01.0/0000:01:00.0"; its folder's name.
    std::string pci(const std::string& way, const std::string& device_class, const std::string& vendor, int numa = -1,
                    const std::string& speed = "16.0 GT/s PCIe", int lanes = 16);
    // Of the device whose folder that is.
    void rdma(const std::string& device, const std::string& name, const std::string& rate = "200 Gb/sec (4X HDR)");
    void network(const std::string& device, const std::string& name, int mbps, const std::string& state = "up");

    // The threads that this process may run on; else all.
    void allow(const std::string& list);
    // No NVML.
    topology::Sources sources() const;
    const std::filesystem::path& path() const { return folder_.path; }

  private:
    Folder folder_;
};

// The machine, which, written and read again, must be the same one.
topology::Discovered discovered(const topology::Sources& sources);
void check_reads_back(const topology::Graph& graph);
// Whether one of the sentences has it.
bool says(const std::vector<std::string>& notes, const std::string& part);

}  // namespace weft::internal::test
