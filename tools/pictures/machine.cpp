#include "tools/pictures/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/pictures/links.hpp"
#include "tools/pictures/machine_layout.hpp"
#include "tools/pictures/node_label.hpp"

namespace weft::internal::tools {
namespace {

using namespace topology;

struct NodeLook {
    const char *fill, *frame;
};
NodeLook look_of(NodeKind kind) {
    switch (kind) {
        case NodeKind::cpu: return {"#fbe3d0", "#f7f7f7"};
        case NodeKind::pci: return {"#d6e6f3", "#eef2f5"};
        case NodeKind::gpu: return {"#cfeadd", "#cfeadd"};
        case NodeKind::nvswitch: return {"#a8dcc6", "#a8dcc6"};
        case NodeKind::nic: return {"#fbeac0", "#fdf6e3"};
        case NodeKind::port: break;
    }
    return {"#fff7dc", "#fff7dc"};
}

class MachineDrawing {
  public:
    MachineDrawing(Svg& svg, const Graph& graph, int copies, Point at)
        : svg_(svg), graph_(graph), copies_(copies), at_(at), layout_(graph, at) {}

    // Frames first, then links, then devices, so that a link passes behind devices at which it does not end.
    void draw() {
        for (const DrawnHost& host : layout_.hosts) draw_frame(host);
        for (size_t node = 0; node < layout_.boxes.size(); ++node)
            if (layout_.drawn(int(node)) && !layout_.children[node].empty())
                svg_.rectangle(layout_.boxes[node], look_of(graph_.nodes()[node].kind).frame, {"#bbbbbb"}, 4);
        for (const DrawnHost& host : layout_.hosts)
            if (host.bar.width > 0) draw_bar(host);
        const auto ends = arc_ends();
        for (const auto& [joint, bundle] : layout_.bundles)
            layout_.is_arc(joint) ? draw_arc(joint, bundle, ends) : draw_link(joint, bundle);
        for (size_t node = 0; node < layout_.boxes.size(); ++node)
            if (layout_.drawn(int(node))) draw_node(int(node));
        legend_.draw(svg_, {at_.x, layout_.bottom + 24}, std::max(460.0, svg_.right() - at_.x));
    }

  private:
    const Box& head(int node) const { return layout_.heads[size_t(node)]; }
    NodeKind kind(int node) const { return graph_.node(node).kind; }

    void draw_frame(const DrawnHost& host) {
        const int count = host.count * copies_;
        const std::string title = count > 1                  ? fmt::format("host x {}", count)
                                  : layout_.hosts.size() > 1 ? fmt::format("host {}", host.host)
                                                             : "host";
        svg_.rectangle(host.box, "#fcfcfc", {"#333333", 1.4}, 6);
        svg_.text({host.box.x + 9, host.box.y + 19}, title, {13, Anchor::start, "#222222", true});
    }

    void draw_node(int node) {
        const Box& box = head(node);
        svg_.rectangle(box, look_of(kind(node)).fill, {"#555555"}, 4);
        const std::vector<std::string> label = label_of(graph_, node);
        double y = box.y + 2;
        for (size_t line = 0; line < label.size(); ++line) {
            const double size = line == 0 ? name_size : fact_size;
            svg_.text({box.middle(), y += line_height}, fitted(label[line], box.width - 4, size),
                      {size, Anchor::middle, line == 0 ? "#111111" : "#444444", line == 0});
        }
    }

    // The bar that joins more than two CPUs, which are all linked with each other.
    void draw_bar(const DrawnHost& host) {
        std::map<int, Bundle> widest;
        double least = 1e9, most = 0;
        for (const auto& [joint, bundle] : layout_.bundles) {
            if (joint.kind != LinkKind::sys || graph_.node(joint.source).host != host.host) continue;
            least = std::min(least, bundle.gbs);
            most = std::max(most, bundle.gbs);
            for (const int cpu : {joint.source, joint.target})
                if (widest[cpu].gbs < bundle.gbs) widest[cpu] = bundle;
        }
        for (const auto& [cpu, bundle] : widest)
            svg_.line({head(cpu).middle(), host.bar.bottom()}, {head(cpu).middle(), head(cpu).y},
                      legend_.stroke(LinkKind::sys, bundle.gbs, bundle.assumed));
        svg_.rectangle(host.bar, "#f5cdb0", {"#d55e00"});
        const std::string carried =
            least == most ? fmt::format("{:.4g}", most) : fmt::format("{:.4g} to {:.4g}", least, most);
        svg_.text({host.bar.middle(), host.bar.y + 13}, fmt::format("each cpu with each other one: {} GB/s", carried),
                  {10, Anchor::middle});
    }

    void draw_link(const Joint& joint, const Bundle& bundle) {
        const auto [source, target, link_kind] = joint;
        if (is_no_device(graph_, source)) return;
        if (link_kind == LinkKind::sys && layout_.host_of(source).bar.width > 0) return;
        const Stroke stroke = legend_.stroke(link_kind, bundle.gbs, bundle.assumed);
        const Box &one = head(source), &other = head(target);
        if (kind(target) == NodeKind::nvswitch) {
            svg_.line({one.middle(), one.bottom()}, {one.middle(), other.y}, stroke);
        } else if (kind(source) == NodeKind::nvswitch) {
            svg_.line({other.middle(), other.bottom()}, {other.middle(), one.y}, stroke);
        } else if (graph_.node(source).parent == target && (link_kind == LinkKind::pci || link_kind == LinkKind::net)) {
            svg_.line({one.middle(), one.y}, {one.middle(), other.bottom()}, stroke);
        } else if (kind(source) == NodeKind::gpu && kind(target) == NodeKind::cpu) {
            draw_to_cpu(one, other, stroke);
        } else if (kind(source) == NodeKind::cpu && kind(target) == NodeKind::gpu) {
            draw_to_cpu(other, one, stroke);
        } else {
            draw_across(one.x < other.x ? one : other, one.x < other.x ? other : one, stroke,
                        link_kind == LinkKind::sys ? fmt::format("{:.4g} GB/s", bundle.gbs) : "");
        }
    }
    // Draws it beside the GPU's PCI link.
    void draw_to_cpu(const Box& gpu, const Box& cpu, const Stroke& stroke) {
        const double x = gpu.middle() - 16;
        svg_.line({x, gpu.y}, {x, cpu.bottom()}, stroke);
    }
    void draw_across(const Box& left, const Box& right, const Stroke& stroke, const std::string& label) {
        const Point from{left.right(), left.y + left.height / 2}, to{right.x, right.y + right.height / 2};
        svg_.line(from, to, stroke);
        if (!label.empty())
            svg_.text({(from.x + to.x) / 2, (from.y + to.y) / 2 - stroke.width / 2 - 4}, label,
                      {fact_size, Anchor::middle});
    }

    // The points where arcs leave a GPU: near ones outside, so that the arcs of one GPU do not cross.
    std::map<std::pair<int, int>, double> arc_ends() const {
        std::map<int, std::vector<int>> others;
        for (const auto& [joint, bundle] : layout_.bundles)
            if (layout_.is_arc(joint)) {
                others[joint.source].push_back(joint.target);
                others[joint.target].push_back(joint.source);
            }
        std::map<std::pair<int, int>, double> ends;
        for (auto& [gpu, targets] : others) {
            const Box& box = head(gpu);
            const auto place = [&](int target) { return std::pair(head(target).x > box.x, box.x - head(target).x); };
            std::sort(targets.begin(), targets.end(), [&](int a, int b) { return place(a) < place(b); });
            const double step = std::min(12.0, (box.width - 10) / double(targets.size()));
            double x = box.middle() - double(targets.size() - 1) / 2 * step;
            for (const int target : targets) ends[{gpu, target}] = std::exchange(x, x + step);
        }
        return ends;
    }

    void draw_arc(const Joint& joint, const Bundle& bundle, const std::map<std::pair<int, int>, double>& ends) {
        const Point from{ends.at({joint.source, joint.target}), head(joint.source).bottom()};
        const Point to{ends.at({joint.target, joint.source}), head(joint.target).bottom()};
        // The middle of the curve is at three quarters of its control points' depth and a quarter of its ends'.
        const double lowest = layout_.host_of(joint.source).floor + layout_.depth_of(joint) - 8;
        const double control = (4 * lowest - (from.y + to.y) / 2) / 3;
        svg_.curve(from, {from.x, control}, {to.x, control}, to,
                   legend_.stroke(joint.kind, bundle.gbs, bundle.assumed));
    }

    Svg& svg_;
    const Graph& graph_;
    int copies_;
    Point at_;
    MachineLayout layout_;
    LinkLegend legend_;
};

}  // namespace

Status draw_machine(Svg& svg, const Graph& graph, int copies, Point at) {
    size_t drawn = 0;
    for (const EqualHosts& group : alike_hosts(graph)) drawn += group.nodes;
    if (drawn > size_t(nodes_drawn_most))
        return fail(error::usage_limit, "a picture shows at most {1} devices, not {0}; draw fewer hosts", drawn,
                    nodes_drawn_most);
    MachineDrawing(svg, graph, copies, at).draw();
    return ok();
}

}  // namespace weft::internal::tools
