// topology_read.cpp: reads the elements of a topology file as nodes and statements of a graph.
#include <algorithm>
#include <charconv>
#include <climits>
#include <map>
#include <set>
#include <tuple>

#include "src/xml/xml.hpp"
#include "topology/files/topology_xml.hpp"
#include "topology/model/connect.hpp"
#include "topology/model/cpu_mask.hpp"
#include "topology/model/notes.hpp"
#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

namespace {

using xml::Element;
using xml::shown;

constexpr int topology_versions = 2;  // 1: NCCL's; 2: RCCL's, whose links between GPUs are called xgmi
// An affinity of 4,096 hardware threads has 1,151 characters.
constexpr size_t text_bytes_most = 4'096;
constexpr int tracks_most = 32;
constexpr int lanes_unknown = 255;  // Linux's value for a device without a link

enum class Tag : uint8_t { file, system, cpu, pci, gpu, nic, net, nvlink, c2c, pcilink, other };
struct TagRow {
    Tag tag;
    const char* name;
    std::initializer_list<Tag> parents;
};
const TagRow tag_rows[] = {{Tag::system, "system", {Tag::file}},    {Tag::cpu, "cpu", {Tag::system}},
                           {Tag::pci, "pci", {Tag::cpu, Tag::pci}}, {Tag::gpu, "gpu", {Tag::pci}},
                           {Tag::nic, "nic", {Tag::pci, Tag::cpu}}, {Tag::net, "net", {Tag::nic}},
                           {Tag::nvlink, "nvlink", {Tag::gpu}},     {Tag::nvlink, "xgmi", {Tag::gpu}},
                           {Tag::c2c, "c2c", {Tag::gpu}},           {Tag::pcilink, "pcilink", {Tag::pci}}};

const char* name_of(Tag tag) {
    for (const TagRow& row : tag_rows)
        if (row.tag == tag) return row.name;
    return "file";
}

// In the form of topology_write. False: another form, and nothing is known.
bool read_caches(std::string_view text, std::vector<Cache>& caches) {
    const char* place = text.data();
    const char* const end = place + text.size();
    std::vector<Cache> read;
    while (place < end) {
        int64_t numbers[4] = {};  // level, bytes, threads, count
        for (int64_t& each : numbers) {
            if (place == end || *place != (&each == numbers ? 'L' : ':')) return false;
            const auto [behind, error] = std::from_chars(place + 1, end, each);
            if (error != std::errc() || each < 1 || (&each != &numbers[1] && each > 65'536)) return false;
            place = behind;
        }
        read.push_back({int(numbers[0]), numbers[1], int(numbers[2]), int(numbers[3])});
        if (read.size() > caches_most || (place < end && (*place++ != ',' || place == end))) return false;
    }
    caches = std::move(read);
    return true;
}

class TopologyReader : xml::Handler {
  public:
    Result<ReadTopology> read(std::string_view text) {
        WEFT_TRY(xml::read(text, *this));
        if (result_.graph.nodes().empty()) note(1, "the file has no cpu: it describes nothing");
        WEFT_TRY(connect(result_.graph, result_.notes));
        return std::move(result_);
    }

  private:
    struct Open {
        Tag tag;
        int node;
    };

    template <class... Arguments>
    void note(int line, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        say(result_.notes, "line {}: {}", line, fmt::format(format, std::forward<Arguments>(arguments)...));
    }

    void start(Element& element) override {
        const Open above = open_.empty() ? Open{Tag::file, -1} : open_.back();
        const auto row = std::find_if(std::begin(tag_rows), std::end(tag_rows),
                                      [&](const TagRow& it) { return element.name() == it.name; });
        if (above.tag == Tag::other || (row == std::end(tag_rows) && above.tag != Tag::file)) {
            if (above.tag != Tag::other && skipped_.size() < notes_most &&
                skipped_.insert(shown(element.name())).second)
                note(element.mark().line, "<{}> is not known and is skipped", shown(element.name()));
            open_.push_back({Tag::other, -1});
            return;
        }
        if (row == std::end(tag_rows) || (above.tag == Tag::file && row->tag != Tag::system))
            return element.wrong("expected <system>, found <{}>: this is not a topology file", shown(element.name()));
        if (std::find(row->parents.begin(), row->parents.end(), above.tag) == row->parents.end())
            return element.wrong("<{}> is inside <{}>; it belongs into <{}>", row->name, name_of(above.tag),
                                 name_of(*row->parents.begin()));
        open_.push_back({row->tag, above.node});
        switch (row->tag) {
            case Tag::system: start_system(element); break;
            case Tag::cpu: open_.back().node = start_cpu(element); break;
            case Tag::pci: open_.back().node = start_pci(element, above.node); break;
            case Tag::gpu: start_gpu(element, above.node); break;
            case Tag::nic: open_.back().node = start_nic(element, above); break;
            case Tag::net: open_.back().node = start_net(element, above.node); break;
            case Tag::nvlink: start_nvlink(element, above.node); break;
            case Tag::c2c: start_c2c(element, above.node); break;
            case Tag::pcilink: start_pcilink(element, above.node); break;
            case Tag::file:
            case Tag::other: break;
        }
    }
    void end() override { open_.pop_back(); }

    // Empty: unknown.
    std::string text(Element& element, const char* name) {
        const char* value = element.find(name);
        if (!value) return {};
        std::string text = value;
        if (text.size() > text_bytes_most)
            element.wrong("{} of <{}> has {} characters; at most {} are read", name, element.name(), text.size(),
                          text_bytes_most);
        return text;
    }
    int number(Element& element, const char* name, int least, int most) {
        const char* value = element.find(name);
        return value && *value ? element.number(name, least, most) : unknown;
    }
    std::string bus_id(Element& element, const char* name) {
        const std::string_view stated = element.text(name);
        std::string busid = normal_busid(stated);
        if (busid.empty() && element.ok())
            element.wrong("{} of <{}> is {}, which is not a bus id; write it as in 0000:07:00.0", name, element.name(),
                          shown(stated));
        return busid;
    }
    int add(Element& element, Node node) {
        if (!element.ok()) return -1;
        node.source_line.line = element.mark().line;
        const auto index = result_.graph.add(std::move(node));
        if (!index) element.wrong("{}", index.status().sentence());
        return index ? *index : -1;
    }
    void state(Element& element, Statement statement) {
        if (!element.ok() || is_stated_by_another_part(statement)) return;
        statement.source_line.line = element.mark().line;
        if (const Status status = result_.graph.state(std::move(statement)); !status)
            element.wrong("{}", status.sentence());
    }

    void start_system(Element& element) {
        const int stated = number(element, "version", 0, INT_MAX);
        if (element.ok() && stated != unknown && (stated < 1 || stated > topology_versions))
            element.wrong("version of <system> is {}; Weft reads versions 1 to {}", stated, topology_versions);
    }
    int start_cpu(Element& element) {
        const auto host = result_.graph.host(text(element, "host_hash"));
        if (!host) {
            element.wrong("{}", host.status().sentence());
            return -1;
        }
        Node node;
        node.kind = NodeKind::cpu;
        node.host = *host;
        node.cpu.numaid = element.number("numaid", -1, 65'535);
        node.cpu.affinity = text(element, "affinity");
        if (!node.cpu.affinity.empty() && !CpuMask::is_mask(node.cpu.affinity)) {
            note(element.mark().line, "affinity of cpu {} is {}: taken for unknown; write it as in ffff,ffffffff",
                 node.cpu.numaid, shown(node.cpu.affinity));
            node.cpu.affinity.clear();
        }
        node.cpu.arch = text(element, "arch");
        node.cpu.vendor = text(element, "vendor");
        node.cpu.family = number(element, "familyid", 0, INT_MAX);
        node.cpu.model = number(element, "modelid", 0, INT_MAX);
        node.cpu.package = number(element, "package", 0, 65'535);
        node.cpu.cores = number(element, "cores", 0, 65'535);
        node.cpu.allowed = text(element, "allowed");
        if (const std::string stated = text(element, "caches"); !read_caches(stated, node.cpu.caches))
            note(element.mark().line, "caches of cpu {} are {}: taken for unknown; write them as in L2:2097152:2:16",
                 node.cpu.numaid, shown(stated));
        return add(element, std::move(node));
    }
    int start_pci(Element& element, int parent) {
        Node node;
        node.busid = bus_id(element, "busid");
        node.pci.device_class = text(element, "class");
        node.pci.vendor = text(element, "vendor");
        node.pci.device = text(element, "device");
        node.kind = kind_of(node.pci);  // although the elements of GPUs and NICs are missing
        node.pci.subsystem_vendor = text(element, "subsystem_vendor");
        node.pci.subsystem_device = text(element, "subsystem_device");
        node.pci.link_speed = text(element, "link_speed");
        if (!node.pci.link_speed.empty() && pci_transfers(node.pci.link_speed) == 0) {
            note(element.mark().line, "link_speed of {} is {}: taken for unknown; write it as in 16.0 GT/s PCIe",
                 node.busid, shown(node.pci.link_speed));
            node.pci.link_speed.clear();
        }
        node.pci.link_width = number(element, "link_width", 0, lanes_unknown);
        // 63 and 255: of a device that does not answer
        if (node.pci.link_width == 0 || node.pci.link_width > tracks_most) {
            note(element.mark().line, "link_width of {} is {}: taken for unknown", node.busid, node.pci.link_width);
            node.pci.link_width = unknown;
        }
        if (element.find("virtual_of")) node.pci.virtual_of = bus_id(element, "virtual_of");
        if (element.ok() && parent >= 0) {
            const Node& above = result_.graph.node(parent);
            node.host = above.host;
            if (above.kind == NodeKind::gpu || above.kind == NodeKind::nic)
                element.wrong("{} is inside {}, which is a {} by its class: only bridges have devices below them",
                              node.busid, above.busid, name_of(above.kind));
        }
        node.parent = parent;
        return add(element, std::move(node));
    }
    // The pci element becomes the device inside it.
    void become(Element& element, int pci, NodeKind kind) {
        Node& node = result_.graph.change(pci);
        if (node.kind != kind && (node.kind != NodeKind::pci || result_.graph.children(pci) > 0))
            return element.wrong("<{}> is inside {}, which {}; a device is one of them", element.name(), node.busid,
                                 node.kind == NodeKind::pci ? std::string("has devices below it")
                                                            : fmt::format("is a {}", name_of(node.kind)));
        node.kind = kind;
    }
    // A partitioned GPU has an element for each part.
    void start_gpu(Element& element, int pci) {
        become(element, pci, NodeKind::gpu);
        Gpu gpu;
        gpu.dev = number(element, "dev", -1, 65'535);
        gpu.sm = number(element, "sm", -1, 9'999);
        gpu.rank = number(element, "rank", -1, INT_MAX);
        gpu.gdr = number(element, "gdr", -1, 1);
        gpu.keep = number(element, "keep", -1, 1);
        gpu.mlopart = number(element, "mlopart", -1, 65'535);
        gpu.gcn = text(element, "gcn");
        gpu.domain = text(element, "domain");
        Node& node = result_.graph.change(pci);
        is_further_part_ = !gpus_.insert(pci).second;
        if (!is_further_part_) {
            node.gpu = std::move(gpu);
            return;
        }
        if (node.parts.empty())
            note(element.mark().line, "{} has several <gpu>: paths and channels treat it as one GPU", node.busid);
        if (node.parts.size() == parts_most)
            return element.wrong("{} has more than {} <gpu>", node.busid, parts_most + 1);
        node.parts.push_back(std::move(gpu));
    }
    int start_nic(Element& element, const Open& above) {
        if (above.tag == Tag::pci) {
            become(element, above.node, NodeKind::nic);
            return above.node;
        }
        return above.node;  // a NIC of software, made for its first port
    }
    // NCCL's dumps repeat a NIC of software under each cpu.
    bool repeats(const Node& port) const {
        const auto of_host = ports_.find({port.host, port.port.dev, port.port.name});
        if (of_host == ports_.end() || (port.port.dev == unknown && port.port.name.empty())) return false;
        const Port &one = result_.graph.node(of_host->second).port, &other = port.port;
        return (one.number == other.number || one.number == unknown || other.number == unknown) &&
               (one.guid == other.guid || one.guid.empty() || other.guid.empty());
    }
    int start_net(Element& element, int nic) {
        Node node;
        node.kind = NodeKind::port;
        node.host = result_.graph.node(nic).host;
        node.port.name = text(element, "name");
        node.port.dev = number(element, "dev", -1, 65'535);
        node.port.speed = number(element, "speed", -1, 100'000'000);
        if (node.port.speed <= 0) {  // NCCL's own files have -1 if a network has no speed
            if (node.port.speed == 0)
                note(element.mark().line, "speed of net {} is 0: taken for unknown", shown(node.port.name));
            node.port.speed = unknown;
        }
        node.port.number = number(element, "port", 0, 65'535);
        node.port.guid = text(element, "guid");
        if (const char* latency = element.find("latency"); latency && *latency)
            node.port.latency_us = element.number("latency", 0.0, 1e9);
        node.port.maxconn = number(element, "maxconn", 0, INT_MAX);
        node.port.gdr = number(element, "gdr", -1, 1);
        node.port.coll = number(element, "coll", -1, 1);
        node.port.keep = number(element, "keep", -1, 1);
        node.port.interface = text(element, "interface");
        node.port.link_layer = text(element, "link_layer");
        node.port.gid = text(element, "gid");
        if (!element.ok()) return -1;
        if (repeats(node)) {
            note(element.mark().line, "net {} appears twice: it is one port", shown(node.port.name));
            return -1;
        }
        if (result_.graph.node(nic).kind == NodeKind::cpu) {
            Node of_software;
            of_software.kind = NodeKind::nic;
            of_software.host = node.host;
            of_software.parent = nic;
            nic = open_[open_.size() - 2].node = add(element, std::move(of_software));
            if (nic < 0) return -1;
        }
        node.parent = nic;
        const std::tuple key(node.host, node.port.dev, node.port.name);
        const int index = add(element, std::move(node));
        ports_.try_emplace(key, index);
        return index;
    }
    // The parts of a divided GPU share its links: each part's element may state them.
    bool is_stated_by_another_part(const Statement& statement) const {
        if (!is_further_part_) return false;
        const auto& all = result_.graph.statements();
        for (auto it = all.rbegin(); it != all.rend() && it->source == statement.source; ++it)
            if (it->kind == statement.kind && it->target == statement.target) return true;
        return false;
    }
    void start_nvlink(Element& element, int gpu) {
        Statement statement{LinkKind::nvlink, gpu, {}, text(element, "tclass"), 1, 0, {}};
        const std::string_view target = element.text("target");
        statement.target = normal_busid(target);
        // Virtual machines see no bus ids of switches and cpus, and write a shorter text.
        const bool may_hide = statement.target_class == "0x068000" || statement.target_class == "0x068001";
        if (statement.target.empty() && may_hide) statement.target = target.substr(0, 40);
        if (statement.target.empty() && element.ok())
            element.wrong("target of <nvlink> is {}, which is not a bus id; write it as in 0000:07:00.0",
                          shown(target));
        statement.count = links(element);
        state(element, std::move(statement));
    }
    int links(Element& element) {
        const char* stated = element.find("count");
        return stated && *stated ? element.number("count", 1, nvlinks_most) : 1;
    }
    void start_c2c(Element& element, int gpu) {
        Statement statement{LinkKind::c2c, gpu, {}, {}, 1, 0, {}};
        statement.count = links(element);
        statement.bandwidth_mbs = element.number("bw", 1, 100'000'000);
        state(element, std::move(statement));
    }
    void start_pcilink(Element& element, int pci) {
        Statement statement{LinkKind::local, pci, bus_id(element, "target"), {}, 1, 0, {}};
        state(element, std::move(statement));
    }

    ReadTopology result_;
    std::vector<Open> open_;
    std::set<std::string> skipped_;
    std::set<int> gpus_;                                      // that have had their element
    bool is_further_part_ = false;                            // the present <gpu>
    std::map<std::tuple<int, int, std::string>, int> ports_;  // by host, dev and name
};

}  // namespace

Result<ReadTopology> read_topology(std::string_view xml) { return TopologyReader().read(xml); }

}  // namespace weft::internal::topology
