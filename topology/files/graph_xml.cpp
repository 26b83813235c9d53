#include "topology/files/graph_xml.hpp"

#include <algorithm>
#include <charconv>
#include <climits>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "src/xml/xml.hpp"
#include "topology/files/xml_writing.hpp"
#include "topology/model/notes.hpp"

namespace weft::internal::topology {

namespace {

using xml::Element;
using xml::shown;

constexpr int version = 1;
constexpr int graphs_most = 64;
constexpr int channels_most = 1'024;
constexpr int64_t stops_most = int64_t(1) << 22;  // of all channels together
constexpr int host_shift = 56;                    // bits of a dev below its host
constexpr double gbs_most = 1e6;

class GraphReader : xml::Handler {
  public:
    Result<ReadGraphs> read(std::string_view text) {
        WEFT_TRY(xml::read(text, *this));
        return std::move(result_);
    }

  private:
    static constexpr const char* levels[] = {"graphs", "graph", "channel"};

    void start(Element& element) override {
        const size_t depth = depth_++;
        if (skipping_ > 0 || depth > std::size(levels)) {
            if (skipping_ == 0)
                return element.wrong("a stop of a channel holds nothing, found <{}>", shown(element.name()));
            ++skipping_;
            return;
        }
        if (depth == std::size(levels)) return start_stop(element);
        if (element.name() != levels[depth]) {
            if (depth == 0)
                return element.wrong("expected <graphs>, found <{}>: this is not a graph file", shown(element.name()));
            say(result_.notes, "line {}: <{}> is not known and is skipped", element.mark().line, shown(element.name()));
            skipping_ = 1;
            return;
        }
        switch (depth) {
            case 0: start_file(element); break;
            case 1: start_graph(element); break;
            case 2: start_channel(element); break;
        }
    }
    void end() override {
        --depth_;
        if (skipping_ > 0) --skipping_;
        if (skipping_ == 0 && depth_ == 1 && stated_channels_ >= 0) end_graph();
    }

    void start_file(Element& element) {
        const int stated = element.number_or("version", 0, INT_MAX, version);
        if (element.ok() && stated != version)
            element.wrong("version of <graphs> is {}; Weft reads version {}", stated, version);
    }
    PathClass path_class(Element& element, const char* name) {
        const char* value = element.find(name);
        if (!value) return PathClass::loc;
        const PathClass found = path_class_named(value);
        if (found == PathClass::none)
            element.wrong("{} of <graph> is {}; there are LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS and NET",
                          name, shown(value));
        return found;
    }
    void start_graph(Element& element) {
        if (result_.graphs.size() == size_t(graphs_most))
            return element.wrong("there are more than {} graphs", graphs_most);
        ChannelGraph& graph = result_.graphs.emplace_back();
        graph.id = element.number("id", 0, 65'535);
        if (element.ok() && !ids_.insert(graph.id).second) element.wrong("graph {} appears twice", graph.id);
        graph.pattern = Pattern(element.number("pattern", int(Pattern::balanced_tree), int(Pattern::collnet_direct)));
        graph.cross_nic = element.number_or("crossnic", 0, 2, 0);
        stated_channels_ = element.number_or("nchannels", 0, channels_most, 0);
        states_channels_ = element.find("nchannels") != nullptr;
        graph.intra_gbs = element.number_or("speedintra", 0.0, gbs_most, 0.0);
        graph.inter_gbs = element.number_or("speedinter", 0.0, gbs_most, 0.0);
        graph.latency_inter_us = element.number_or("latencyinter", 0.0, 1e9, 0.0);
        graph.type_intra = path_class(element, "typeintra");
        graph.type_inter = path_class(element, "typeinter");
        graph.same_channels = element.number_or("samechannels", 0, 1, 1) != 0;
        line_ = element.mark().line;
    }
    void end_graph() {
        const ChannelGraph& graph = result_.graphs.back();
        if (states_channels_ && size_t(stated_channels_) != graph.channels.size())
            say(result_.notes, "line {}: nchannels of graph {} is {}, but it has {}: these are taken", line_, graph.id,
                stated_channels_, graph.channels.size());
        stated_channels_ = -1;
    }
    void start_channel(Element& element) {
        auto& channels = result_.graphs.back().channels;
        if (channels.size() == size_t(channels_most))
            return element.wrong("graph {} has more than {} channels", result_.graphs.back().id, channels_most);
        channels.emplace_back();
        gpus_.clear();
    }
    // Some versions of NCCL write it in hexadecimal, with the host in the upper eight bits.
    int dev(Element& element, int& host) {
        const std::string_view text = element.text("dev");
        if (text.substr(0, 2) != "0x") return element.number("dev", 0, 65'535);
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
        host = int(value >> host_shift);
        value &= (uint64_t(1) << host_shift) - 1;
        if (error != std::errc() || end != text.data() + text.size() || value > 65'535)
            element.wrong("dev of <{}> is {}, which is not the index of a device", element.name(), shown(text));
        return int(value & 0xffff);
    }
    void start_stop(Element& element) {
        Stop stop;
        if (element.name() == "net")
            stop.kind = NodeKind::port;
        else if (element.name() == "cpu")
            stop.kind = NodeKind::cpu;
        else if (element.name() != "gpu")
            return element.wrong("a channel holds <gpu>, <cpu> and <net>, found <{}>", shown(element.name()));
        if (++stops_ > stops_most) return element.wrong("the channels have more than {} stops", stops_most);
        stop.dev = dev(element, stop.host);
        stop.rank = element.number_or("rank", -1, INT_MAX, unknown);
        ChannelGraph& graph = result_.graphs.back();
        // Trees pass a GPU upwards and downwards; a ring does not.
        if (element.ok() && graph.pattern == Pattern::ring && stop.kind == NodeKind::gpu &&
            !gpus_.insert({stop.host, stop.rank == unknown ? stop.dev : -2 - stop.rank}).second)
            element.wrong("gpu {} appears twice in this channel; a ring passes each gpu once", stop.dev);
        graph.channels.back().stops.push_back(stop);
    }

    ReadGraphs result_;
    size_t depth_ = 0;
    size_t skipping_ = 0;       // open elements that are ignored
    int stated_channels_ = -1;  // -1: no graph is open
    bool states_channels_ = false;
    int line_ = 0;
    int64_t stops_ = 0;
    std::set<int> ids_;
    std::set<std::pair<int, int>> gpus_;  // of this channel: host, and dev or rank
};

}  // namespace

const char* name_of(Pattern pattern) {
    switch (pattern) {
        case Pattern::balanced_tree: return "balanced_tree";
        case Pattern::split_tree: return "split_tree";
        case Pattern::tree: return "tree";
        case Pattern::ring: return "ring";
        case Pattern::nvls: return "nvls";
        case Pattern::collnet_direct: return "collnet_direct";
    }
    return "?";
}

std::vector<int> devs_of(const Graph& graph) {
    const auto stated = [](const Node& node) {
        return node.kind == NodeKind::gpu    ? node.gpu.dev
               : node.kind == NodeKind::port ? node.port.dev
                                             : node.cpu.numaid;
    };
    std::vector<int> devs;
    std::map<std::pair<NodeKind, int>, int> places;  // by kind and host: the number so far
    std::map<std::pair<NodeKind, int>, int> beyond;  // and the next unused number
    std::set<std::tuple<NodeKind, int, int>> given;
    for (const Node& node : graph.nodes()) {
        int& next = beyond[{node.kind, node.host}];
        next = std::max(next, stated(node) + 1);
    }
    for (const Node& node : graph.nodes()) {
        const int place = places[{node.kind, node.host}]++;
        int dev = stated(node) == unknown ? place : stated(node);
        // If devices share one, the first has it.
        if (stated(node) != unknown && !given.insert({node.kind, node.host, dev}).second)
            dev = beyond[{node.kind, node.host}]++;
        devs.push_back(dev);
    }
    return devs;
}

Result<ReadGraphs> read_graphs(std::string_view xml) { return GraphReader().read(xml); }

std::string write_graphs(const std::vector<ChannelGraph>& graphs) {
    XmlWriter xml;
    xml.open("graphs");
    xml.attribute("version", version);
    for (const ChannelGraph& graph : graphs) {
        xml.open("graph");
        xml.attribute("id", graph.id);
        xml.attribute("pattern", int(graph.pattern));
        xml.attribute("crossnic", graph.cross_nic);
        xml.attribute("nchannels", int(graph.channels.size()));
        xml.attribute("speedintra", graph.intra_gbs);
        xml.attribute("speedinter", graph.inter_gbs);
        xml.attribute("latencyinter", graph.latency_inter_us);
        xml.attribute("typeintra", name_of(graph.type_intra));
        xml.attribute("typeinter", name_of(graph.type_inter));
        xml.attribute("samechannels", int(graph.same_channels));
        for (const ChannelPath& channel : graph.channels) {
            xml.open("channel");
            for (const Stop& stop : channel.stops) {
                xml.open(stop.kind == NodeKind::port ? "net" : name_of(stop.kind));
                // Old versions of NCCL read decimal numbers, new ones hexadecimal; both accept the prefix 0x.
                const uint64_t dev = uint64_t(stop.host) << host_shift | uint64_t(stop.dev);
                xml.attribute("dev", dev < 10 ? fmt::format("{}", dev) : fmt::format("{:#x}", dev));
                if (stop.rank != unknown) xml.attribute("rank", stop.rank);
                xml.close();
            }
            xml.close();
        }
        xml.close();
    }
    xml.close();
    return xml.take();
}

}  // namespace weft::internal::topology
