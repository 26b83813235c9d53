#include "src/planning/machines.hpp"

#include <string.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/control/agreed_texts.hpp"
#include "topology/description.hpp"
#include "topology/detect/discover.hpp"
#include "topology/files/topology_xml.hpp"
#include "topology/model/cpu_mask.hpp"
#include "topology/search/arrangement.hpp"

namespace weft::internal {

// A parsed description of a machine. The communicators of a process share it.
struct DescribedMachine {
    topology::Graph graph;                                // without nodes: the text is invalid
    std::vector<std::pair<int, topology::CpuMask>> cpus;  // nodes, and their hardware threads

    // A wrong text is wrong on all ranks, so it counts as unknown. Any other failure concerns this process alone.
    static Result<std::shared_ptr<const DescribedMachine>> of(const std::string& text) {
        return shared_by_process<const DescribedMachine>(
            text, [&]() -> Result<std::shared_ptr<const DescribedMachine>> {
                auto described = std::make_shared<DescribedMachine>();
                auto read = topology::read_topology(text);
                if (!read && read.status().code() != weftInvalidArgument) return read.take_status();
                if (read) described->graph = std::move(read->graph);
                for (const int cpu : described->graph.of_kind(topology::NodeKind::cpu))
                    described->cpus.emplace_back(cpu,
                                                 topology::CpuMask::from_mask(described->graph.node(cpu).cpu.affinity));
                return std::shared_ptr<const DescribedMachine>(std::move(described));
            });
    }
    // The CPU node of a hardware thread; the first one if no node has the thread; -1: there is no node.
    int cpu_of(int thread) const {
        for (const auto& [cpu, threads] : cpus)
            if (threads.contains(thread)) return cpu;
        return cpus.empty() ? -1 : cpus.front().first;
    }
    int gpu_of(const DeviceFacts& device) const {
        const std::string_view bus_id(device.bus_id, strnlen(device.bus_id, sizeof device.bus_id));
        const int node = graph.find(0, topology::normal_busid(bus_id));
        return node >= 0 && graph.node(node).kind == topology::NodeKind::gpu ? node : -1;
    }
};

namespace {

// The layout without ring orders. All ranks have joined.
Layout bare_layout(const Segment& group) {
    std::vector<int32_t> hosts;
    if (!group.one_host())
        for (int other = 0; other < group.ranks(); ++other) hosts.push_back(group.rank_info(other).host);
    return {group.ranks(), 0, std::move(hosts)};
}

// Bounds the kinds of machines, because each kind costs a search on every rank.
constexpr int kinds_most = 64;

}  // namespace

Result<MachineText> describe_this_machine(bool gpus) {
    struct Known {
        std::mutex mutex;
        std::array<std::optional<MachineText>, 2> machines;
    };
    static PerProcess<Known> processes;
    Known& known = processes.get();
    std::lock_guard lock(known.mutex);
    std::optional<MachineText>& machine = known.machines[gpus];
    if (!machine) {
        Options wanted = options();
        const std::string dump = std::exchange(wanted.topo_dump_file, {});
        // NCCL's files describe GPUs, so a job without GPUs does not need them.
        const bool of_nccl = !wanted.topo_file.empty() && wanted.origin(OptionIndex::topo_file) == Origin::alias;
        if (of_nccl && !gpus) {
            const std::string file = std::exchange(wanted.topo_file, {});
            WEFT_LOG(warn, init,
                     "{}, {}: the file is not used, because the job has no GPU; to use it, name it by WEFT_TOPO_FILE",
                     wanted.variable(OptionIndex::topo_file), file);
        }
        auto found = topology::discover_this_host(wanted, {.nvml = gpus, .verbs = false});
        if (!found) return found.take_status();
        if (!found->left_aside.empty()) WEFT_LOG(warn, init, "{}", found->left_aside);
        if (!found->foreign.empty() && !known.machines[!gpus])
            WEFT_LOG(warn, init, "{}; its statements are kept", found->foreign);
        if (!dump.empty())
            if (const Status written = topology::write_topology_file(found->graph, dump); !written)
                WEFT_LOG(warn, init, "{}: {}", wanted.variable(OptionIndex::topo_dump_file), written.sentence());
        std::string described = topology::describe(found->graph, gpus);
        if (described.size() > AgreedTexts::machine_bytes_most) {
            WEFT_LOG(warn, init,
                     "the description of this machine has {} bytes, more than the {} that are sent: rings pass hosts "
                     "and ranks in their order",
                     described.size(), AgreedTexts::machine_bytes_most);
            described.clear();
        }
        machine = {std::move(described), topology::shared_domain(found->graph)};
    }
    return *machine;
}

// The nodes of the ranks on the graphs of their hosts.
class Machines::Seating {
  public:
    Seating(const Segment& group, const Layout& layout) : segment_(group), layout_(layout) {}

    Status read(const AgreedTexts& texts) {
        for (const std::string& text : texts.machines) {
            auto machine = DescribedMachine::of(text);
            if (!machine) return machine.take_status();
            machines_.push_back(std::move(*machine));
            job_.graphs.push_back(&machines_.back()->graph);
        }
        const int hosts = layout_.host_count();
        for (int host = 0; host < hosts; ++host) {
            const int32_t index = size_t(host) < texts.machine_of.size() ? texts.machine_of[size_t(host)] : -1;
            unknown_ += index < 0 || size_t(index) >= machines_.size() || machines_[size_t(index)]->cpus.empty();
            job_.graph_of.push_back(index);
            domain_of_.push_back(texts.machine(host).domain);
        }
        return ok();
    }
    // By host, see Layout: the NVLink domains that span several hosts.
    std::vector<int32_t> domains() const { return topology::domains_of(domain_of_); }
    int hosts() const { return int(job_.graph_of.size()); }
    int unknown() const { return unknown_; }  // hosts whose machine is unknown
    int kinds() const { return int(machines_.size()); }

    // Places the ranks by their CPU, or by their GPU. False: some rank has no location.
    bool take_cpus() {
        return take(
            [this](const DescribedMachine& machine, int rank) { return machine.cpu_of(segment_.rank_info(rank).cpu); });
    }
    bool take_gpus() {
        return take([this](const DescribedMachine& machine, int rank) {
            const DeviceFacts& device = segment_.row(rank).gpu.facts;
            return device.use == DeviceFacts::usable ? machine.gpu_of(device) : -1;
        });
    }
    // Whether ranks of one host are on different nodes.
    bool apart() const {
        std::vector<int> first(job_.graph_of.size(), -1);
        return std::any_of(job_.locations.begin(), job_.locations.end(), [&](const topology::RankLocation& location) {
            int& node = first[size_t(location.host_set)];
            if (node < 0) node = location.node;
            return node != location.node;
        });
    }
    const topology::Job& job() const { return job_; }

  private:
    template <class Node>
    bool take(const Node& node_of) {
        job_.locations.clear();
        for (int rank = 0; rank < layout_.ranks; ++rank) {
            const int host = layout_.host_of(rank);
            const int node = node_of(*machines_[size_t(job_.graph_of[size_t(host)])], rank);
            if (node < 0) return false;
            job_.locations.push_back({host, node, topology::unknown, segment_.rank_info(rank).cpu});
        }
        return true;
    }

    const Segment& segment_;
    const Layout& layout_;
    std::vector<std::shared_ptr<const DescribedMachine>> machines_;
    std::vector<std::string> domain_of_;  // by host
    topology::Job job_;
    int unknown_ = 0;
};

Result<std::shared_ptr<const Machines>> Machines::of(const Segment& group) {
    return shared_by_process<const Machines>(group.memory().inode(), [&]() -> Result<std::shared_ptr<const Machines>> {
        auto machines = std::make_shared<Machines>(group);
        WEFT_TRY(machines->find(group));
        return std::shared_ptr<const Machines>(std::move(machines));
    });
}

Machines::Machines(const Segment& group) : plain_(bare_layout(group)) {}

Status Machines::find(const Segment& group) {
    const AgreedTexts texts = AgreedTexts::of(group);
    // No description was exchanged, or the ranks need no ring order.
    const bool devices = group.row(0).gpu.facts.use == DeviceFacts::usable;
    if (plain_.ranks < 2 || (plain_.ranks == 2 && !devices) || texts.machines.empty()) return ok();
    Seating seating(group, plain_);
    WEFT_TRY(seating.read(texts));
    if (seating.unknown() > 0 || seating.kinds() > kinds_most) {
        notes_.push_back(fmt::format(
            "rings pass hosts and ranks in their order, for {}",
            seating.unknown() > 0
                ? fmt::format("the machines of {} of {} hosts are unknown", seating.unknown(), seating.hosts())
                : fmt::format("{} kinds of machines are more than {}", seating.kinds(), kinds_most)));
        return ok();
    }
    if (plain_.ranks > 2 && seating.take_cpus()) {
        apart_ = seating.apart();
        on_cpus_ = find("processors", seating, {});
    }
    if (!devices) return ok();
    if (seating.take_gpus())
        on_gpus_ = find("GPUs", seating, seating.domains());
    else
        notes_.push_back("GPUs: rings pass hosts and ranks in their order, for some rank's GPU is none of its host's");
    return ok();
}

Machines::Rings Machines::find(const char* what, const Seating& seating, std::vector<int32_t> domains) {
    Layout layout = plain_;
    topology::ArrangementReport found = topology::arrange(seating.job(), what, std::move(domains), layout);
    for (std::string& note : found.notes) notes_.push_back(std::move(note));
    return {std::move(layout.ring_orders), std::move(layout.rails), std::move(layout.domains), found.gbs};
}

Layout Machines::with(const Rings& rings, int rank) const {
    Layout layout = plain_;
    layout.rank = rank;
    layout.ring_orders = rings.orders;
    layout.rails = rings.rails;
    layout.domains = rings.domains;
    return layout;
}

uint64_t Machines::digest(const Rings& rings) {
    uint64_t hash = 0;
    for (const auto& order : rings.orders)
        for (const int32_t rank : order) hash = (hash ^ uint64_t(uint32_t(rank) + 1)) * 0x100000001b3u;
    return hash;
}

}  // namespace weft::internal
