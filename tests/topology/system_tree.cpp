#include "tests/topology/system_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "tests/catch.hpp"
#include "topology/files/topology_xml.hpp"

namespace weft::internal::test {

using namespace topology;

void SystemTree::file(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((path() / name).parent_path());
    std::ofstream(path() / name) << text << '\n';
}

void SystemTree::link(const std::string& name, const std::string& target) {
    std::filesystem::create_directories((path() / name).parent_path());
    std::filesystem::create_symlink(path() / target, path() / name);
}

void SystemTree::remove(const std::string& name) { std::filesystem::remove_all(path() / name); }

void SystemTree::processors(int domains, int cores_each) {
    const int threads = 2 * domains * cores_each;
    file("sys/devices/system/cpu/online", fmt::format("0-{}", threads - 1));
    file("proc/sys/kernel/hostname", "node7");
    file("proc/sys/kernel/random/boot_id", "5e4f");
    file("proc/sys/kernel/arch", "x86_64");
    file("proc/cpuinfo",
         "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon");
    for (int domain = 0; domain < domains; ++domain) {
        const std::string all = fmt::format("{}-{}", 2 * domain * cores_each, 2 * (domain + 1) * cores_each - 1);
        file(fmt::format("sys/devices/system/node/node{}/cpulist", domain), all);
        for (int i = 0; i < 2 * cores_each; ++i) {
            const int thread = 2 * domain * cores_each + i;
            const std::string cpu = fmt::format("sys/devices/system/cpu/cpu{}/", thread),
                              siblings = fmt::format("{}-{}", thread / 2 * 2, thread / 2 * 2 + 1);
            file(cpu + "topology/physical_package_id", std::to_string(domain));
            file(cpu + "topology/thread_siblings_list", siblings);
            struct Row {
                int level;
                const char *type, *size;
                std::string shared;
            };
            const Row rows[] = {{1, "Data", "48K", siblings},
                                {1, "Instruction", "32K", siblings},
                                {2, "Unified", "2048K", siblings},
                                {3, "Unified", "32768K", all}};
            for (int index = 0; const Row& row : rows) {
                const std::string cache = cpu + fmt::format("cache/index{}/", index++);
                file(cache + "level", std::to_string(row.level));
                file(cache + "type", row.type);
                file(cache + "size", row.size);
                file(cache + "shared_cpu_list", row.shared);
            }
        }
    }
}

std::string SystemTree::pci(const std::string& way, const std::string& device_class, const std::string& vendor,
                            int numa, const std::string& speed, int lanes) {
    std::string folder = "sys/devices/" + way;
    const std::string busid = way.substr(way.rfind('/') + 1);
    file(folder + "/class", device_class);
    file(folder + "/vendor", vendor);
    file(folder + "/device", "0x1234");
    file(folder + "/numa_node", std::to_string(numa));
    for (const char* which : {"max", "current"}) {
        file(fmt::format("{}/{}_link_speed", folder, which), speed);
        file(fmt::format("{}/{}_link_width", folder, which), std::to_string(lanes));
    }
    link("sys/bus/pci/devices/" + busid, folder);
    return folder;
}

void SystemTree::rdma(const std::string& device, const std::string& name, const std::string& rate) {
    const std::string folder = device + "/infiniband/" + name;
    file(folder + "/sys_image_guid", "0c42:a103:0065:ba1a");
    file(folder + "/ports/1/state", "4: ACTIVE");
    file(folder + "/ports/1/rate", rate);
    file(folder + "/ports/1/link_layer", "InfiniBand");
    file(folder + "/ports/1/gids/0", "fe80:0000:0000:0000:0c42:a103:0065:ba1a");
    link(folder + "/device", device);
    link("sys/class/infiniband/" + name, folder);
}

void SystemTree::network(const std::string& device, const std::string& name, int mbps, const std::string& state) {
    const std::string folder = (device.empty() ? "sys/devices/virtual" : device) + "/net/" + name;
    file(folder + "/type", "1");
    file(folder + "/operstate", state);
    file(folder + "/speed", std::to_string(mbps));
    file(folder + "/dev_port", "0");
    if (!device.empty()) link(folder + "/device", device);
    link("sys/class/net/" + name, folder);
}

void SystemTree::allow(const std::string& list) {
    file("proc/thread-self/status",
         "Name:\tweft\nCpus_allowed:\tff\nCpus_allowed_list:\t" + list + "\nMems_allowed:\t1");
}

Sources SystemTree::sources() const {
    Sources sources;
    sources.sys = path() / "sys";
    sources.proc = path() / "proc";
    return sources;
}

void check_reads_back(const Graph& graph) {
    const std::string text = write_topology(graph);
    const auto read = read_topology(text);
    INFO(text << read.status().sentence());
    REQUIRE(read.ok());
    CHECK(read->graph == graph);
}

Discovered discovered(const Sources& sources) {
    Discovered found = discover(sources);
    check_reads_back(found.graph);
    return found;
}

bool says(const std::vector<std::string>& notes, const std::string& part) {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

}  // namespace weft::internal::test
