// hardware_graph.cpp: makes a graph of a host's hardware: GPUs and NICs, and the PCI switches between them and their
// cpus.
#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "topology/detect/hardware.hpp"
#include "topology/model/connect.hpp"
#include "topology/model/notes.hpp"

namespace weft::internal::topology {

namespace {

constexpr int bridges_most = 32;  // the limit for reading NCCL's files

class GraphMaker {
  public:
    GraphMaker(Hardware& hardware, const CpuMask& allowed) : hardware_(hardware), allowed_(allowed) {}

    Result<Graph> make() {
        const auto host = graph_.host(hardware_.host);
        if (!host) return host.status().copy();
        settle_domains();
        settle_interfaces();
        choose_devices();
        for (const NumaDomain& domain : hardware_.domains) WEFT_TRY(add_cpu(domain));
        WEFT_TRY(connect(graph_, hardware_.notes));
        return std::move(graph_);
    }

  private:
    void settle_domains() {
        auto& domains = hardware_.domains;
        if (domains.empty()) {
            CpuMask threads = hardware_.online.empty() ? allowed_ : hardware_.online;
            if (threads.empty()) threads.add(0);
            domains.push_back({0, std::move(threads)});
            say(hardware_.notes, "the NUMA domains of this host are unknown: it is taken for one");
        }
        std::sort(domains.begin(), domains.end(),
                  [](const NumaDomain& one, const NumaDomain& other) { return one.number < other.number; });
    }

    // An Ethernet port of an RDMA device is also an interface; they become one.
    void settle_interfaces() {
        auto& all = hardware_.interfaces;
        std::stable_partition(all.begin(), all.end(), [](const Interface& it) { return it.rdma; });
        for (auto it = all.begin(); it != all.end();) {
            const auto same = std::find_if(all.begin(), it, [&](const Interface& other) {
                return other.rdma && !it->rdma && !it->busid.empty() && other.busid == it->busid &&
                       (it->port.number == unknown || other.port.number == it->port.number);
            });
            if (same == it) {
                ++it;
                continue;
            }
            if (same->port.interface.empty()) same->port.interface = it->port.name;
            if (same->port.speed == unknown) same->port.speed = it->port.speed;
            it = all.erase(it);
        }
        for (size_t i = 0; i < all.size(); ++i) all[i].port.dev = int(i);
    }

    // Every second bridge above a device is the upper end of a switch, which represents the switch in NCCL's files. The
    // others are lower ends of switches and ports of the host.
    std::string switch_above(const std::string& busid) const {
        const auto found = hardware_.devices.find(busid);
        return found == hardware_.devices.end() || found->second.bridges.size() < 2 ? std::string()
                                                                                    : found->second.bridges[1];
    }
    bool is_bridge(const std::string& busid) const {
        const auto found = hardware_.devices.find(busid);
        return found == hardware_.devices.end() || found->second.pci.device_class.compare(0, 6, "0x0604") == 0;
    }

    void choose_devices() {
        for (const Interface& it : hardware_.interfaces)
            if (!it.busid.empty() && !is_bridge(it.busid)) ports_[it.busid].push_back(&it);
        std::set<std::string> chosen;
        for (const auto& [busid, device] : hardware_.devices)
            if (device.kind() != NodeKind::pci || ports_.count(busid) != 0 || hardware_.gpus.count(busid) != 0)
                chosen.insert(busid);
        std::map<int, int> lost;  // devices of a missing or unknown domain
        for (const std::string& device : chosen) {
            if (is_bridge(device)) continue;
            // From the device upwards. A cycle, as in a folder made by hand, ends at the cpu.
            std::vector<std::string> way{device};
            int numa = unknown;
            for (;;) {
                const auto found = hardware_.devices.find(way.back());
                // The uppermost known one counts, because a switch is at one cpu.
                if (found != hardware_.devices.end() && found->second.numa != unknown) numa = found->second.numa;
                const std::string above = switch_above(way.back());
                if (above.empty() || !is_bridge(above) || way.size() > size_t(bridges_most)) break;
                if (std::find(way.begin(), way.end(), above) != way.end()) break;
                way.push_back(above);
            }
            for (size_t i = 0; i + 1 < way.size(); ++i)
                if (placed_.insert(way[i]).second) below_[way[i + 1]].insert(way[i]);
            if (placed_.insert(way.back()).second) {
                const bool there = std::any_of(hardware_.domains.begin(), hardware_.domains.end(),
                                               [&](const NumaDomain& it) { return it.number == numa; });
                if (!there && (numa != unknown || hardware_.domains.size() > 1)) ++lost[numa];
                roots_[there ? numa : hardware_.domains[0].number].insert(way.back());
            }
        }
        for (const auto& [numa, count] : lost)
            say(hardware_.notes, "{} PCI device{} {} of {}: placed under cpu {}", count, count == 1 ? "" : "s",
                count == 1 ? "is" : "are",
                numa == unknown ? std::string("an unknown NUMA domain")
                                : fmt::format("NUMA domain {}, which has no processors here", numa),
                hardware_.domains[0].number);
    }

    Status add_cpu(const NumaDomain& domain) {
        Node node;
        node.kind = NodeKind::cpu;
        Cpu& cpu = node.cpu;
        cpu.numaid = domain.number;
        cpu.affinity = domain.threads.mask();
        cpu.arch = hardware_.arch;
        cpu.vendor = hardware_.vendor;
        cpu.family = hardware_.family;
        cpu.model = hardware_.model;
        if (!allowed_.empty())
            if (const CpuMask part = domain.threads & allowed_; part != domain.threads)
                cpu.allowed = part.empty() ? "0" : part.mask();
        for (const Package& package : hardware_.packages)
            if ((package.threads & domain.threads) == domain.threads) cpu.package = package.number;
        if (!hardware_.cores.empty())
            cpu.cores = int(std::count_if(hardware_.cores.begin(), hardware_.cores.end(),
                                          [&](const CpuMask& core) { return domain.threads.contains(core.first()); }));
        cpu.caches = caches_of(domain);
        const auto index = graph_.add(std::move(node));
        if (!index) return index.status().copy();
        for (const std::string& busid : roots_[domain.number]) WEFT_TRY(add_device(busid, *index));
        if (domain.number == hardware_.domains[0].number) WEFT_TRY(add_software(*index));
        return ok();
    }
    std::vector<Cache> caches_of(const NumaDomain& domain) const {
        std::map<std::tuple<int, int64_t, int>, int> counts;
        for (const CacheUnit& it : hardware_.caches)
            if (!(it.threads & domain.threads).empty()) ++counts[{it.level, it.bytes, it.threads.count()}];
        std::vector<Cache> caches;
        for (const auto& [cache, count] : counts)
            if (caches.size() < caches_most)
                caches.push_back({std::get<0>(cache), std::get<1>(cache), std::get<2>(cache), count});
        return caches;
    }

    // In the order of files, so that a written graph is read as an equal graph. At most bridges_most deep.
    Status add_device(const std::string& busid, int parent) {
        Node node;
        node.parent = parent;
        node.busid = busid;
        const auto found = hardware_.devices.find(busid);
        if (found != hardware_.devices.end()) node.pci = found->second.pci;
        const auto below = below_.find(busid);
        const auto ports = ports_.find(busid);
        const auto gpu = hardware_.gpus.find(busid);
        if (below != below_.end()) {
            node.kind = NodeKind::pci;
            if (node.pci.device_class.empty()) node.pci.device_class = "0x060400";
        } else {
            node.kind = gpu != hardware_.gpus.end() ? NodeKind::gpu
                        : ports != ports_.end()     ? NodeKind::nic
                                                    : kind_of(node.pci);
        }
        const NodeKind kind = node.kind;
        if (kind == NodeKind::gpu && gpu != hardware_.gpus.end()) node.gpu = gpu->second;
        const auto index = graph_.add(std::move(node));
        if (!index) return index.status().copy();
        if (below != below_.end())
            for (const std::string& child : below->second) WEFT_TRY(add_device(child, *index));
        if (kind == NodeKind::gpu)
            for (const Nvlinks& links : hardware_.links)
                if (links.busid == busid)
                    for (Statement statement : links.statements) {
                        statement.source = *index;
                        WEFT_TRY(graph_.state(std::move(statement)));
                    }
        if (kind != NodeKind::nic || ports == ports_.end()) return ok();
        const size_t count = std::min(ports->second.size(), size_t(ports_per_nic_most));
        for (size_t i = 0; i < count; ++i) WEFT_TRY(add_port(*ports->second[i], *index));
        if (count < ports->second.size())
            say(hardware_.notes, "{} has {} ports: {} are used", busid, ports->second.size(), count);
        return ok();
    }
    Status add_port(const Interface& interface, int nic) {
        Node node;
        node.kind = NodeKind::port;
        node.parent = nic;
        node.port = interface.port;
        return graph_.add(std::move(node)).take_status();
    }
    // Interfaces without a PCI device.
    Status add_software(int cpu) {
        for (const Interface& it : hardware_.interfaces) {
            if (!it.busid.empty() && placed_.count(it.busid) != 0) continue;
            Node nic;
            nic.kind = NodeKind::nic;
            nic.parent = cpu;
            const auto index = graph_.add(std::move(nic));
            if (!index) return index.status().copy();
            WEFT_TRY(add_port(it, *index));
        }
        return ok();
    }

    Hardware& hardware_;
    const CpuMask& allowed_;
    Graph graph_;
    std::map<std::string, std::vector<const Interface*>> ports_;  // by bus id
    std::map<std::string, std::set<std::string>> below_;
    std::map<int, std::set<std::string>> roots_;  // by NUMA domain
    std::set<std::string> placed_;
};

}  // namespace

Result<Graph> make_graph(Hardware& hardware, const CpuMask& allowed) { return GraphMaker(hardware, allowed).make(); }

}  // namespace weft::internal::topology
