#include "topology/model/connect.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "topology/model/notes.hpp"
#include "topology/model/speeds.hpp"
#include "topology/model/unique_numbers.hpp"

namespace weft::internal::topology {

class GraphConnector {
  public:
    GraphConnector(Graph& graph, std::vector<std::string>& notes) : graph_(graph), notes_(notes) {}
    Status run();

  private:
    Status check_indices();
    Status link_statements();

    Graph& graph_;
    std::vector<std::string>& notes_;
};

static std::string at(const SourceLine& source_line) {
    return source_line.line > 0 ? fmt::format("line {}: ", source_line.line) : std::string();
}

// A rank names one device. An index may name several: parts of a GPU, or devices that several processes counted.
Status GraphConnector::check_indices() {
    UniqueNumbers claims;
    std::map<std::tuple<NodeKind, int, int>, int> first;
    graph_.sharing_dev_.clear();
    for (int index = 0; index < int(graph_.nodes_.size()); ++index) {
        const Node& it = graph_.node(index);
        const int dev = it.kind == NodeKind::gpu ? it.gpu.dev : it.kind == NodeKind::port ? it.port.dev : unknown;
        if (dev != unknown) {
            const auto [has, added] = first.try_emplace({it.kind, it.host, dev}, index);
            if (!added) {
                graph_.sharing_dev_.insert({has->second, index});
                say(notes_, "{}{} has the dev of {}: {} distinguishes them", at(it.source_line), graph_.name(index),
                    graph_.name(has->second), it.kind == NodeKind::gpu ? "the bus id" : "the place in the file");
            }
        }
        if (it.kind != NodeKind::gpu) continue;
        for (size_t part = 0; part <= it.parts.size(); ++part) {
            const int rank = part == 0 ? it.gpu.rank : it.parts[part - 1].rank;
            if (!claims.rank(rank))
                return fail(error::topology_invalid, "{}two gpus have rank {}; each gpu has its own rank",
                            at(it.source_line), rank);
        }
    }
    return ok();
}

Status GraphConnector::link_statements() {
    // NVLinks between two GPUs, stated by both ends: the links from the first to the second.
    struct Stated {
        int count = 0;
        SourceLine source_line;
    };
    std::map<std::pair<int, int>, Stated> between;
    std::set<std::pair<int, int>> halves;
    for (size_t i = 0; i < graph_.statements_.size(); ++i) {
        const Statement& it = graph_.statements_[i];
        const int host = graph_.node(it.source).host;
        const int cpu = graph_.cpu_above(it.source);
        Link link{it.kind, it.source, -1, true, it.count, 0, latency_us(it.kind), false, {}};
        if (it.kind == LinkKind::c2c) {
            link.target = cpu;
            link.bandwidth_gbs = double(it.bandwidth_mbs) * it.count / 1000;
            WEFT_TRY(graph_.push(std::move(link)));
            continue;
        }
        const int target = graph_.find(host, it.target);
        if (target == it.source) {
            say(notes_, "{}{} has a link to itself: it is ignored", at(it.source_line), graph_.name(it.source));
            continue;
        }
        if (it.kind == LinkKind::local) {
            if (target < 0 || graph_.node(target).kind != NodeKind::pci) {
                say(notes_,
                    "{}the pcilink of {} leads to {}, which is not a PCI switch of the host: it is "
                    "ignored; correct its target, or add the switch",
                    at(it.source_line), graph_.name(it.source), it.target);
                continue;
            }
            // Both halves state it.
            if (!halves.insert(std::minmax(it.source, target)).second) continue;
            link.target = target;
            link.bandwidth_gbs = local_gbs;
            WEFT_TRY(graph_.push(std::move(link)));
            continue;
        }
        const Speed speed = nvlink_speed(graph_.node(it.source).gpu, it.count);
        link.bandwidth_gbs = speed.bandwidth_gbs;
        link.assumed = speed.assumed;
        if (it.target_class == "0x068001") {
            link.target = cpu;
        } else if (it.target_class == "0x068000" ||
                   (target >= 0 && graph_.node(target).pci.device_class == "0x068000")) {
            link.plane = it.target;
            auto nvswitch = graph_.nvswitch_of(it.source);
            if (!nvswitch) return nvswitch.take_status();
            link.target = *nvswitch;
        } else if (target >= 0 && graph_.node(target).kind == NodeKind::gpu) {
            Stated& stated = between[{it.source, target}];
            stated.count += it.count;
            stated.source_line = it.source_line;
            continue;
        } else {
            say(notes_,
                "{}the nvlink of {} leads to {}, which is not a GPU of the host: it is ignored; "
                "correct its target, or add the GPU",
                at(it.source_line), graph_.name(it.source), it.target);
            continue;
        }
        WEFT_TRY(graph_.push(std::move(link)));
    }
    for (const auto& [ends, stated] : between) {
        const auto [source, target] = ends;
        const auto back = between.find({target, source});
        if (back != between.end() && source > target) continue;  // done with the other end's statement
        int count = stated.count;
        if (back == between.end()) {
            say(notes_,
                "{}{} states an nvlink to {}, which does not state it: taken for both ways; "
                "each of the two should state it",
                at(stated.source_line), graph_.name(source), graph_.name(target));
        } else if (back->second.count != count) {
            say(notes_, "{}{} states {} nvlinks to {}, which states {}: the lesser number is taken",
                at(stated.source_line), graph_.name(source), count, graph_.name(target), back->second.count);
            count = std::min(count, back->second.count);
        }
        const Speed a = nvlink_speed(graph_.node(source).gpu, count), b = nvlink_speed(graph_.node(target).gpu, count);
        WEFT_TRY(graph_.push({LinkKind::nvlink,
                              source,
                              target,
                              true,
                              count,
                              std::min(a.bandwidth_gbs, b.bandwidth_gbs),
                              latency_us(LinkKind::nvlink),
                              a.assumed || b.assumed,
                              {}}));
    }
    return ok();
}

Status GraphConnector::run() {
    graph_.disconnect();
    WEFT_TRY(check_indices());
    std::vector<std::vector<int>> cpus(graph_.hosts_.size());
    for (int index = 0; index < int(graph_.nodes_.size()); ++index) {
        const Node& it = graph_.node(index);
        if (it.kind == NodeKind::cpu) {
            for (const int other : cpus[size_t(it.host)]) {
                const Speed speed = sys_speed(graph_.node(other).cpu, it.cpu);
                WEFT_TRY(graph_.push({LinkKind::sys,
                                      other,
                                      index,
                                      true,
                                      1,
                                      speed.bandwidth_gbs,
                                      latency_us(LinkKind::sys),
                                      speed.assumed,
                                      {}}));
            }
            cpus[size_t(it.host)].push_back(index);
        }
        if (it.parent < 0) continue;
        Link link{LinkKind::pci, index, it.parent, true, 1, 0, 0, false, {}};
        Speed speed;
        if (it.kind == NodeKind::port) {
            link.kind = LinkKind::net;
            speed = port_speed(it.port);
        } else if (it.busid.empty()) {
            speed = {local_gbs, false};  // a NIC of software
        } else {
            speed = pci_speed(it.pci);
            link.count = it.pci.link_width > 0 ? it.pci.link_width : 16;
        }
        link.bandwidth_gbs = speed.bandwidth_gbs;
        link.assumed = speed.assumed;
        link.latency_us = latency_us(link.kind);
        WEFT_TRY(graph_.push(std::move(link)));
    }
    WEFT_TRY(link_statements());
    for (const Link& link : graph_.added_links_) WEFT_TRY(graph_.push(link));
    return ok();
}

Status connect(Graph& graph, std::vector<std::string>& notes) { return GraphConnector(graph, notes).run(); }

}  // namespace weft::internal::topology
