#include "topology/merge.hpp"

#include <set>
#include <string_view>
#include <tuple>

#include "topology/speeds.hpp"

namespace weft::topology {

namespace {

std::string shown(const std::string& value) { return value; }
std::string shown(int value) { return std::to_string(value); }
bool is_known(const std::string& value) { return !value.empty(); }
bool is_known(int value) { return value != unknown; }

class Merger {
  public:
    Merger(const Graph& file, const Graph& detected)
        : file_(file), detected_(detected), graph_(file), index_(detected.nodes().size(), -1) {
        for (const Node& node : file.nodes()) claim(node);
        for (const Statement& it : file.statements()) stated_.insert({it.source, it.kind});
    }

    Result<Merged> merge() {
        WEFT_TRY(match_hosts());
        for (int i = 0; i < int(index_.size()); ++i) WEFT_TRY(take(i));
        for (const Statement& it : detected_.statements()) WEFT_TRY(take(it));
        WEFT_TRY(graph_.connect(notes_));
        return Merged{std::move(graph_), std::move(notes_)};
    }

  private:
    template <class... Arguments>
    void note(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        if (notes_.size() < notes_most) notes_.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
    }

    Status match_hosts() {
        const auto& theirs = detected_.hosts();
        // A hash tells hosts apart; it changes with the host's name, and files of clouds have none.
        if (theirs.size() == 1 && graph_.hosts().size() == 1) {
            const std::string stated = graph_.hosts()[0];
            if (!stated.empty() && !theirs[0].empty() && stated != theirs[0])
                note("the file was written on another host: its host_hash is {}, this one's {}", stated, theirs[0]);
            if (!theirs[0].empty()) graph_.name_host(0, theirs[0]);
            hosts_ = {0};
            return ok();
        }
        for (const std::string& hash : theirs) {
            const auto host = graph_.host(hash);
            if (!host) return Status(host.status().code(), host.status().sentence());
            hosts_.push_back(*host);
        }
        return ok();
    }

    // Indices of devices, and ranks, are given once.
    bool claim(NodeKind kind, int host, int number) {
        return number == unknown || claimed_.insert({int(kind), host, number}).second;
    }
    bool claim_rank(int rank) { return rank == unknown || ranks_.insert(rank).second; }
    void claim(const Node& node) {
        if (node.kind == NodeKind::gpu) claim(NodeKind::gpu, node.host, node.gpu.dev), claim_rank(node.gpu.rank);
        if (node.kind == NodeKind::port) claim(NodeKind::port, node.host, node.port.dev);
    }

    // The file's value stays.
    template <class Value>
    void fill(int node, const char* what, Value& mine, const Value& theirs) {
        if (!is_known(theirs) || mine == theirs) return;
        if (!is_known(mine))
            mine = theirs;
        else
            note("{} of {} is {} in the file, but {} as detected: the file's is kept", what, graph_.name(node),
                 shown(mine), shown(theirs));
    }

    int match(const Node& theirs, int host) const {
        if (theirs.kind == NodeKind::cpu) return graph_.find_cpu(host, theirs.cpu.numaid);
        if (theirs.kind == NodeKind::port) return match_port(theirs);
        if (!theirs.busid.empty()) return graph_.find(host, theirs.busid);
        return match_software_nic(theirs, host);
    }
    int match_port(const Node& theirs) const {
        const int nic = index_[size_t(theirs.parent)];
        int only = -1, ports = 0;
        for (int i = 0; i < int(file_.nodes().size()); ++i) {
            const Node& mine = graph_.node(i);
            if (mine.kind != NodeKind::port || mine.parent != nic) continue;
            if (!mine.port.name.empty() && mine.port.name == theirs.port.name) return i;
            if (mine.port.name.empty() || theirs.port.name.empty()) {
                if (mine.port.number != unknown && mine.port.number == theirs.port.number) return i;
                only = ++ports == 1 && mine.port.number == unknown ? i : -1;
            }
        }
        return only;
    }
    // By the name of a port.
    int match_software_nic(const Node& theirs, int host) const {
        const auto& nodes = detected_.nodes();
        for (const Node& port : nodes) {
            if (port.kind != NodeKind::port || port.port.name.empty() || &nodes[size_t(port.parent)] != &theirs)
                continue;
            for (const Node& mine : file_.nodes())
                if (mine.kind == NodeKind::port && mine.host == host && mine.port.name == port.port.name &&
                    file_.node(mine.parent).busid.empty())
                    return mine.parent;
        }
        return -1;
    }

    Status take(int theirs_index) {
        const Node& theirs = detected_.node(theirs_index);
        if (theirs.kind == NodeKind::nvswitch) return ok();  // connect makes them
        const int host = hosts_[size_t(theirs.host)];
        int& mine = index_[size_t(theirs_index)];
        mine = match(theirs, host);
        if (mine < 0) return add(theirs, host, mine);
        Node& node = graph_.change(mine);
        check_place(theirs, mine);
        switch (theirs.kind) {
            case NodeKind::cpu: fill_cpu(mine, node.cpu, theirs.cpu); return ok();
            case NodeKind::port: fill_port(mine, node, theirs.port); return ok();
            default: break;
        }
        fill_pci(mine, node.pci, theirs.pci);
        if (node.kind == NodeKind::pci && theirs.kind != NodeKind::pci && !has_children(mine)) node.kind = theirs.kind;
        if (theirs.kind != NodeKind::pci && node.kind != theirs.kind)
            note("{} is a {} in the file, but a {} as detected: the file's is kept", node.busid, name_of(node.kind),
                 name_of(theirs.kind));
        else if (theirs.kind == NodeKind::gpu)
            fill_gpu(mine, node, theirs.gpu);
        return ok();
    }

    Status add(const Node& theirs, int host, int& mine) {
        Node node = theirs;
        node.host = host;
        node.place = {};
        if (node.parent >= 0) {
            node.parent = index_[size_t(node.parent)];
            // The file may know what was detected as a switch for a device.
            if (node.parent >= 0 && node.kind != NodeKind::port &&
                (graph_.node(node.parent).kind == NodeKind::gpu || graph_.node(node.parent).kind == NodeKind::nic))
                node.parent = graph_.cpu_above(node.parent);
            if (node.parent < 0 || (node.kind == NodeKind::port && graph_.node(node.parent).kind != NodeKind::nic)) {
                note("{} was detected, but the file has no place for it: it is left out",
                     detected_.name(int(&theirs - detected_.nodes().data())));
                return ok();
            }
        }
        if (node.kind == NodeKind::gpu && !claim_rank(node.gpu.rank)) node.gpu.rank = unknown;
        int* dev = node.kind == NodeKind::gpu ? &node.gpu.dev : node.kind == NodeKind::port ? &node.port.dev : nullptr;
        if (dev && !claim(node.kind, host, *dev)) {
            note("the {} {} was detected with dev {}, which the file gives to another: it has no dev now",
                 name_of(node.kind), node.kind == NodeKind::gpu ? node.busid : node.port.name, *dev);
            *dev = unknown;
        }
        auto index = graph_.add(std::move(node));
        if (!index) return index.take_status();
        mine = *index;
        return ok();
    }

    bool has_children(int index) const {
        for (const Node& node : graph_.nodes())
            if (node.parent == index) return true;
        return false;
    }

    // A file that knows bridges that were not seen contradicts nobody.
    void check_place(const Node& theirs, int mine) {
        if (theirs.parent < 0) return;
        const int parent = index_[size_t(theirs.parent)];
        for (int above = graph_.node(mine).parent; above >= 0; above = graph_.node(above).parent)
            if (above == parent) return;
        if (parent >= 0)
            note("{} is under {} in the file, but under {} as detected: the file's place is kept", graph_.name(mine),
                 graph_.name(graph_.node(mine).parent), graph_.name(parent));
    }

    void fill_cpu(int node, Cpu& mine, const Cpu& theirs) {
        fill(node, "affinity", mine.affinity, theirs.affinity);
        fill(node, "arch", mine.arch, theirs.arch);
        fill(node, "vendor", mine.vendor, theirs.vendor);
        fill(node, "familyid", mine.family, theirs.family);
        fill(node, "modelid", mine.model, theirs.model);
    }
    void fill_pci(int node, Pci& mine, const Pci& theirs) {
        fill(node, "class", mine.device_class, theirs.device_class);
        fill(node, "vendor", mine.vendor, theirs.vendor);
        fill(node, "device", mine.device, theirs.device);
        fill(node, "subsystem_vendor", mine.subsystem_vendor, theirs.subsystem_vendor);
        fill(node, "subsystem_device", mine.subsystem_device, theirs.subsystem_device);
        // "16 GT/s" and "16.0 GT/s PCIe" are one speed.
        const Pci speed_alone[] = {{{}, {}, {}, {}, {}, mine.link_speed, 1},
                                   {{}, {}, {}, {}, {}, theirs.link_speed, 1}};
        if (mine.link_speed.empty() ||
            pci_speed(speed_alone[0]).bandwidth_gbs != pci_speed(speed_alone[1]).bandwidth_gbs)
            fill(node, "link_speed", mine.link_speed, theirs.link_speed);
        fill(node, "link_width", mine.link_width, theirs.link_width);
    }
    void fill_gpu(int index, Node& node, const Gpu& theirs) {
        Gpu& mine = node.gpu;
        if (mine.dev != unknown || claim(NodeKind::gpu, node.host, theirs.dev))
            fill(index, "dev", mine.dev, theirs.dev);
        if (mine.rank != unknown || claim_rank(theirs.rank)) fill(index, "rank", mine.rank, theirs.rank);
        fill(index, "sm", mine.sm, theirs.sm);
        fill(index, "gdr", mine.gdr, theirs.gdr);
        fill(index, "domain", mine.domain, theirs.domain);
    }
    void fill_port(int index, Node& node, const Port& theirs) {
        Port& mine = node.port;
        fill(index, "name", mine.name, theirs.name);
        if (mine.dev != unknown || claim(NodeKind::port, node.host, theirs.dev))
            fill(index, "dev", mine.dev, theirs.dev);
        fill(index, "speed", mine.speed, theirs.speed);
        fill(index, "port", mine.number, theirs.number);
        fill(index, "guid", mine.guid, theirs.guid);
        fill(index, "maxconn", mine.maxconn, theirs.maxconn);
        fill(index, "gdr", mine.gdr, theirs.gdr);
        fill(index, "coll", mine.coll, theirs.coll);
        if (mine.latency_us < 0) mine.latency_us = theirs.latency_us;
    }

    // Who has links of a kind in the file has all of them there.
    Status take(const Statement& theirs) {
        const int source = index_[size_t(theirs.source)];
        if (source < 0) return ok();
        const Node& node = graph_.node(source);
        if (node.kind != (theirs.kind == LinkKind::local ? NodeKind::pci : NodeKind::gpu)) return ok();
        if (stated_.count({source, theirs.kind}) == 0) {
            Statement statement = theirs;
            statement.source = source;
            statement.place = {};
            return graph_.state(std::move(statement));
        }
        for (const Statement& mine : file_.statements()) {
            if (mine.source != source || mine.kind != theirs.kind || mine.target != theirs.target) continue;
            if (mine.count != theirs.count || mine.bandwidth_mbs != theirs.bandwidth_mbs)
                note("{} has {} {} links{}{} in the file, but {} as detected: the file's are kept", graph_.name(source),
                     mine.count, name_of(mine.kind), mine.target.empty() ? "" : " to ", mine.target, theirs.count);
            return ok();
        }
        note(
            "a {} link of {} to {} was detected, which the file does not state, though it states others: it is left "
            "out",
            name_of(theirs.kind), graph_.name(source), theirs.target);
        return ok();
    }

    const Graph &file_, &detected_;
    Graph graph_;
    std::vector<std::string> notes_;
    std::vector<int> hosts_;  // of each detected one
    std::vector<int> index_;  // of each detected node
    std::set<std::tuple<int, int, int>> claimed_;
    std::set<int> ranks_;
    std::set<std::pair<int, LinkKind>> stated_;
};

}  // namespace

Result<Merged> merge(const Graph& file, const Graph& detected) { return Merger(file, detected).merge(); }

}  // namespace weft::topology
