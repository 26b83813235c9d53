#include "src/comm/machines.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>

#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/bootstrap/agreed_texts.hpp"
#include "topology/cpu_mask.hpp"
#include "topology/description.hpp"
#include "topology/discover.hpp"
#include "topology/rank_orders.hpp"
#include "topology/topology_xml.hpp"

namespace weft {

Result<std::string> describe_this_machine(bool gpus) {
    struct Known {
        std::mutex mutex;
        std::array<std::optional<std::string>, 2> texts;
    };
    static PerProcess<Known> processes;
    Known& known = processes.get();
    std::lock_guard lock(known.mutex);
    std::optional<std::string>& text = known.texts[gpus];
    if (!text) {
        auto found = topology::discover_this_host(options(), gpus);
        if (!found) return found.take_status();
        text = topology::describe(found->graph);
    }
    return *text;
}

// `4 6 5 7 ..`
static std::string shortened(const std::vector<int32_t>& ranks) {
    constexpr size_t most = 16;
    std::string text;
    for (size_t i = 0; i < std::min(most, ranks.size()); ++i) text += fmt::format("{}{}", i == 0 ? "" : " ", ranks[i]);
    return ranks.size() > most ? text + " .." : text;
}

// Where the ranks sit on the graphs of their hosts.
class Machines::Seating {
  public:
    explicit Seating(const HostGroup& group) : group_(group) {
        const AgreedTexts texts = AgreedTexts::of(group);
        for (const std::string& text : texts.machines) {
            auto read = topology::read_topology(text);
            graphs_.push_back(read ? std::move(read->graph) : topology::Graph());
            auto& cpus = cpus_.emplace_back();
            for (const int cpu : graphs_.back().of_kind(topology::NodeKind::cpu))
                cpus.emplace_back(cpu, topology::CpuMask::from_mask(graphs_.back().node(cpu).cpu.affinity));
        }
        for (const topology::Graph& graph : graphs_) job_.graphs.push_back(&graph);
        const int hosts = group.one_host() ? 1 : group.header().facts.hosts;
        for (int host = 0; host < hosts; ++host) {
            const int32_t index = size_t(host) < texts.machine_of.size() ? texts.machine_of[size_t(host)] : -1;
            known_ &= index >= 0 && size_t(index) < graphs_.size() && !graphs_[size_t(index)].nodes().empty();
            job_.graph_of.push_back(index);
        }
    }
    // Every host's machine is.
    bool known() const { return known_; }
    int kinds() const { return int(graphs_.size()); }

    // By what each rank sits on: a cpu or a GPU. Whether all have a seat.
    bool take_cpus() {
        return take([this](int graph, int rank) { return cpu_of(graph, group_.home(rank).cpu); });
    }
    bool take_gpus() {
        return take([this](int graph, int rank) {
            const DeviceFacts& device = group_.row(rank).device;
            return device.use == DeviceFacts::usable ? gpu_of(graph, device.bus_id) : -1;
        });
    }
    // Some host's ranks sit on different nodes.
    bool apart() const {
        std::vector<int> first(job_.graph_of.size(), -1);
        return std::any_of(job_.seats.begin(), job_.seats.end(), [&](const topology::Seat& seat) {
            int& node = first[size_t(seat.host_set)];
            if (node < 0) node = seat.node;
            return node != seat.node;
        });
    }
    const topology::Job& job() const { return job_; }

  private:
    template <class Node>
    bool take(const Node& node_of) {
        job_.seats.clear();
        for (int rank = 0; rank < group_.ranks(); ++rank) {
            const int host = group_.one_host() ? 0 : group_.home(rank).host;
            const int node = node_of(job_.graph_of[size_t(host)], rank);
            if (node < 0) return false;
            job_.seats.push_back({host, node, topology::unknown, group_.home(rank).cpu});
        }
        return true;
    }

    // Where nobody knows, the first.
    int cpu_of(int graph, int thread) const {
        const auto& cpus = cpus_[size_t(graph)];
        for (const auto& [cpu, threads] : cpus)
            if (threads.contains(thread)) return cpu;
        return cpus.empty() ? -1 : cpus.front().first;
    }
    int gpu_of(int which, const char* bus_id) const {
        const topology::Graph& graph = graphs_[size_t(which)];
        const int node = graph.find(0, topology::normal_busid(bus_id));
        return node >= 0 && graph.node(node).kind == topology::NodeKind::gpu ? node : -1;
    }

    const HostGroup& group_;
    std::vector<topology::Graph> graphs_;
    std::vector<std::vector<std::pair<int, topology::CpuMask>>> cpus_;  // of each graph
    topology::Job job_;
    bool known_ = true;
};

std::shared_ptr<const Machines> Machines::of(const HostGroup& group) {
    return *shared_by_process<const Machines>(group.memory().inode(), [&]() -> Result<std::shared_ptr<const Machines>> {
        return std::make_shared<const Machines>(group);
    });
}

Machines::Machines(const HostGroup& group) : plain_(layout_of(group, 0)) {
    Seating seating(group);
    if (!seating.known()) return;
    const auto find = [&](const char* what) {
        Rings rings;
        const auto channels = topology::search(seating.job());
        if (!channels) {
            notes_.push_back(fmt::format("{}: rings pass hosts and ranks in their order, for {}", what,
                                         channels.status().sentence()));
            return rings;
        }
        rings.gbs = channels->found_gbs;
        rings.orders = topology::ring_orders(*channels);
        const std::vector<int32_t> usual = plain_.host_major();
        const bool all_usual = std::all_of(rings.orders.begin(), rings.orders.end(),
                                           [&](const std::vector<int32_t>& order) { return order == usual; });
        notes_.push_back(fmt::format(
            "{}: {} kind{} of machines; {}{}", what, seating.kinds(), seating.kinds() == 1 ? "" : "s",
            all_usual ? std::string("rings pass the ranks in their order")
                      : fmt::format("{} ring{} along the links, the first {}", rings.orders.size(),
                                    rings.orders.size() == 1 ? "" : "s", shortened(rings.orders[0])),
            rings.gbs > 0 ? fmt::format(", {:.3g} GB/s of at most {:.3g}", rings.gbs, channels->bound_gbs) : ""));
        if (all_usual) rings.orders.clear();
        return rings;
    };
    if (seating.take_cpus()) {
        apart_ = seating.apart();
        on_cpus_ = find("processors");
    }
    if (seating.take_gpus()) on_gpus_ = find("GPUs");
}

Layout Machines::layout(int rank) const {
    Layout layout = plain_;
    layout.rank = rank;
    layout.ring_orders = on_cpus_.orders;
    return layout;
}

Layout Machines::device_layout(int rank) const {
    Layout layout = plain_;
    layout.rank = rank;
    layout.ring_orders = on_gpus_.orders;
    return layout;
}

}  // namespace weft
