#include "topology/nearest_ports.hpp"

#include "src/base/cpu.hpp"
#include "topology/detect/system_files.hpp"
#include "topology/host_graph.hpp"
#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

std::vector<int> nearest_ports(std::span<const NicPort> ports, const std::string& gpu, int rank) {
    return order_of_ports(host_graph(!gpu.empty()), ports,
                          {.gpu = gpu, .cores = CpuMask::from_set(allowed_cpus()), .rank = rank});
}

double bus_gbs(const std::string& device) {
    SystemFiles files("/sys");
    const std::string folder = "class/infiniband/" + device + "/device/";
    Pci pci;
    pci.link_speed = files.text(folder + "current_link_speed").value_or("");
    pci.link_width = int(files.number(folder + "current_link_width").value_or(unknown));
    const Speed speed = pci_speed(pci);
    return speed.assumed ? 0 : speed.bandwidth_gbs;
}

}  // namespace weft::internal::topology
