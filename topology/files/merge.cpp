#include "topology/files/merge.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "topology/model/connect.hpp"
#include "topology/model/notes.hpp"
#include "topology/model/speeds.hpp"
#include "topology/model/unique_numbers.hpp"

namespace weft::internal::topology {

namespace {

std::string value_text(const std::string& value) { return value; }
std::string value_text(int value) { return std::to_string(value); }
std::string value_text(double value) { return fmt::format("{}", value); }
bool is_known(const std::string& value) { return !value.empty(); }
bool is_known(int value) { return value != unknown; }
bool is_known(double value) { return value != unknown; }

class Merger {
  public:
    Merger(const Graph& file, const Graph& detected)
        : detected_(detected), graph_(file), index_(detected.nodes().size(), -1) {
        graph_.disconnect();
        forget_the_run();
        for (const Node& node : graph_.nodes()) claim(node);
        for (const Statement& it : file.statements()) stated_[{it.source, it.kind}].push_back(&it);
        for (const int port : file.of_kind(NodeKind::port)) {
            const Node& node = file.node(port);
            ports_[node.parent].push_back(port);
            if (file.node(node.parent).busid.empty()) software_nics_.insert({{node.host, node.port.name}, node.parent});
        }
        for (const int port : detected.of_kind(NodeKind::port)) {
            const Node& node = detected.node(port);
            if (!node.port.name.empty()) names_.insert({node.parent, node.port.name});
        }
    }

    Result<Merged> merge() {
        std::string foreign = other_processors("arch", &Cpu::arch);
        if (foreign.empty()) foreign = other_processors("vendor", &Cpu::vendor);
        std::string misfit = foreign.empty() ? other_devices() : foreign;
        WEFT_TRY(match_hosts());
        for (int i = 0; i < int(index_.size()); ++i) WEFT_TRY(take(i));
        for (const Statement& it : detected_.statements()) WEFT_TRY(take(it));
        note_unseen();
        WEFT_TRY(connect(graph_, notes_));
        return Merged{std::move(graph_), std::move(notes_), std::move(foreign), std::move(misfit)};
    }

  private:
    // Ranks and indices of ports are of the run that wrote the file. Detected ones replace them, if there are any.
    void forget_the_run() {
        const auto any = [&](NodeKind kind, const auto& number) {
            for (const int node : detected_.of_kind(kind))
                if (number(detected_.node(node)) != unknown) return true;
            return false;
        };
        if (any(NodeKind::gpu, [](const Node& node) { return node.gpu.rank; }))
            for (const int gpu : graph_.of_kind(NodeKind::gpu)) {
                Node& node = graph_.change(gpu);
                node.gpu.rank = unknown;
                for (Gpu& part : node.parts) part.rank = unknown;
            }
        if (any(NodeKind::port, [](const Node& node) { return node.port.dev; }))
            for (const int port : graph_.of_kind(NodeKind::port)) graph_.change(port).port.dev = unknown;
    }

    // Differences in a property of processors, if some detected cpus have a known value and none has the file's.
    std::string other_processors(const char* what, std::string Cpu::*member) const {
        std::set<std::string> detected;
        for (const int cpu : detected_.of_kind(NodeKind::cpu)) detected.insert(detected_.node(cpu).cpu.*member);
        detected.erase("");
        if (detected.empty()) return {};
        for (const int cpu : graph_.of_kind(NodeKind::cpu)) {
            const std::string& stated = graph_.node(cpu).cpu.*member;
            if (!stated.empty() && detected.count(stated) == 0)
                return fmt::format("the file is of another machine: {} of {} is {}, and here it is {}", what,
                                   graph_.name(cpu), stated, *detected.begin());
        }
        return {};
    }

    // Call before anything is added.
    std::string other_devices() const {
        if (graph_.hosts().size() > detected_.hosts().size())
            return fmt::format("the file is of {} hosts", graph_.hosts().size());
        const auto gpus = [](const Graph& graph) {
            std::set<std::string> ids;
            for (const int gpu : graph.of_kind(NodeKind::gpu)) ids.insert(graph.node(gpu).busid);
            return ids;
        };
        const std::set<std::string> stated = gpus(graph_), here = gpus(detected_);
        const bool common = std::any_of(here.begin(), here.end(), [&](const auto& id) { return stated.count(id) > 0; });
        if (stated.empty() || here.empty() || common) return {};
        return fmt::format("the file is of another machine: none of its GPUs is here, {} first", *stated.begin());
    }

    Status match_hosts() {
        const auto& theirs = detected_.hosts();
        // A hash distinguishes hosts, but it changes with the host's name, and files of clouds have none.
        if (theirs.size() == 1 && graph_.hosts().size() == 1) {
            const std::string stated = graph_.hosts()[0];
            if (!stated.empty() && !theirs[0].empty() && stated != theirs[0])
                say(notes_, "the file was written on another host: its host_hash is {}, this one's {}", stated,
                    theirs[0]);
            if (!theirs[0].empty()) graph_.name_host(0, theirs[0]);
            hosts_ = {0};
            return ok();
        }
        for (const std::string& hash : theirs) {
            const auto host = graph_.host(hash);
            if (!host) return host.status().copy();
            hosts_.push_back(*host);
        }
        return ok();
    }

    void claim(const Node& node) {
        if (node.kind == NodeKind::port) claims_.dev(NodeKind::port, node.host, node.port.dev);
        if (node.kind != NodeKind::gpu) return;
        claim(node.host, node.gpu);
        for (const Gpu& part : node.parts) claim(node.host, part);
    }
    void claim(int host, const Gpu& gpu) {
        claims_.dev(NodeKind::gpu, host, gpu.dev);
        claims_.rank(gpu.rank);
    }

    // On detected hosts. Bridges may be hidden, as in virtual machines.
    void note_unseen() {
        const std::set<int> seen(index_.begin(), index_.end()), hosts(hosts_.begin(), hosts_.end());
        int unseen = 0, first = -1;
        for (int node = 0; node < int(graph_.nodes().size()); ++node) {
            const Node& it = graph_.node(node);
            const bool device = it.kind == NodeKind::gpu || (it.kind == NodeKind::nic && !it.busid.empty());
            if (!device || seen.count(node) > 0 || hosts.count(it.host) == 0) continue;
            if (unseen++ == 0) first = node;
        }
        if (unseen > 0)
            say(notes_,
                "{} device{} of the file, {} first, {} not detected: is it of this machine, and may this "
                "process use them?",
                unseen, unseen == 1 ? "" : "s", graph_.name(first), unseen == 1 ? "was" : "were");
    }

    // The file's value wins.
    template <class Value>
    void fill(int node, const char* what, Value& mine, const Value& theirs) {
        if (!is_known(theirs) || mine == theirs) return;
        if (!is_known(mine))
            mine = theirs;
        else
            say(notes_, "{} of {} is {} in the file, but {} as detected: the file's is kept", what, graph_.name(node),
                value_text(mine), value_text(theirs));
    }

    int match(int theirs_index, int host) const {
        const Node& theirs = detected_.node(theirs_index);
        if (theirs.kind == NodeKind::cpu) return graph_.find_cpu(host, theirs.cpu.numaid);
        if (theirs.kind == NodeKind::port) return match_port(theirs);
        if (!theirs.busid.empty()) return graph_.find(host, theirs.busid);
        // A NIC of software is equal to the one with a port of the same name.
        const auto name = names_.find(theirs_index);
        if (name == names_.end()) return -1;
        const auto nic = software_nics_.find({host, name->second});
        return nic == software_nics_.end() ? -1 : nic->second;
    }
    int match_port(const Node& theirs) const {
        const auto ports = ports_.find(index_[size_t(theirs.parent)]);
        if (ports == ports_.end()) return -1;
        int nameless = -1, count = 0;
        for (const int port : ports->second) {
            const Port& mine = graph_.node(port).port;
            if (!mine.name.empty() && mine.name == theirs.port.name) return port;
            if (!mine.name.empty() && !theirs.port.name.empty()) continue;
            if (mine.number != unknown && mine.number == theirs.port.number) return port;
            nameless = ++count == 1 && (mine.number == unknown || theirs.port.number == unknown) ? port : -1;
        }
        return nameless;
    }

    Status take(int theirs_index) {
        const Node& theirs = detected_.node(theirs_index);
        if (theirs.kind == NodeKind::nvswitch) return ok();  // connect makes them
        const int host = hosts_[size_t(theirs.host)];
        int& mine = index_[size_t(theirs_index)];
        mine = match(theirs_index, host);
        if (mine < 0) return add(theirs, host, mine);
        Node& node = graph_.change(mine);
        check_place(theirs, mine);
        switch (theirs.kind) {
            case NodeKind::cpu: fill_cpu(mine, node.cpu, theirs.cpu); return ok();
            case NodeKind::port: fill_port(mine, node, theirs.port); return ok();
            default: break;
        }
        fill_pci(mine, node.pci, theirs.pci);
        // A GPU only by its class, whose maker the file does not state.
        if (node.kind == NodeKind::gpu && node.gpu == Gpu() && node.parts.empty() &&
            stated_.count({mine, LinkKind::nvlink}) + stated_.count({mine, LinkKind::c2c}) == 0)
            node.kind = kind_of(node.pci);
        if (node.kind == NodeKind::pci && theirs.kind != NodeKind::pci && graph_.children(mine) == 0)
            node.kind = theirs.kind;
        if (theirs.kind != NodeKind::pci && node.kind != theirs.kind)
            say(notes_, "{} is a {} in the file, but a {} as detected: the file's is kept", node.busid,
                name_of(node.kind), name_of(theirs.kind));
        else if (theirs.kind == NodeKind::gpu)
            fill_gpu(mine, node, theirs.gpu);
        return ok();
    }

    Status add(const Node& theirs, int host, int& mine) {
        Node node = theirs;
        node.host = host;
        node.source_line = {};
        if (node.parent >= 0) {
            node.parent = index_[size_t(node.parent)];
            // The file may know that a detected switch is a device.
            if (node.parent >= 0 && node.kind != NodeKind::port &&
                (graph_.node(node.parent).kind == NodeKind::gpu || graph_.node(node.parent).kind == NodeKind::nic))
                node.parent = graph_.cpu_above(node.parent);
            if (node.parent < 0 || (node.kind == NodeKind::port && graph_.node(node.parent).kind != NodeKind::nic)) {
                say(notes_, "{} was detected, but the file has no place for it: it is left out",
                    detected_.name(int(&theirs - detected_.nodes().data())));
                return ok();
            }
        }
        if (node.kind == NodeKind::gpu && !claims_.rank(node.gpu.rank)) node.gpu.rank = unknown;
        for (Gpu& part : node.parts) {
            if (!claims_.rank(part.rank)) part.rank = unknown;
            if (!claims_.dev(NodeKind::gpu, host, part.dev)) part.dev = unknown;
        }
        int* dev = node.kind == NodeKind::gpu ? &node.gpu.dev : node.kind == NodeKind::port ? &node.port.dev : nullptr;
        if (dev && !claims_.dev(node.kind, host, *dev)) {
            say(notes_, "the {} {} was detected with dev {}, which the file gives to another: it has no dev now",
                name_of(node.kind), node.kind == NodeKind::gpu ? node.busid : node.port.name, *dev);
            *dev = unknown;
        }
        auto index = graph_.add(std::move(node));
        if (!index) return index.take_status();
        mine = *index;
        return ok();
    }

    // Bridges of the file that were not detected are no contradiction.
    void check_place(const Node& theirs, int mine) {
        if (theirs.parent < 0) return;
        const int parent = index_[size_t(theirs.parent)];
        for (int above = graph_.node(mine).parent; above >= 0; above = graph_.node(above).parent)
            if (above == parent) return;
        if (parent >= 0)
            say(notes_, "{} is under {} in the file, but under {} as detected: the file's place is kept",
                graph_.name(mine), graph_.name(graph_.node(mine).parent), graph_.name(parent));
    }

    void fill_cpu(int node, Cpu& mine, const Cpu& theirs) {
        fill(node, "affinity", mine.affinity, theirs.affinity);
        fill(node, "arch", mine.arch, theirs.arch);
        fill(node, "vendor", mine.vendor, theirs.vendor);
        fill(node, "familyid", mine.family, theirs.family);
        fill(node, "modelid", mine.model, theirs.model);
        fill(node, "package", mine.package, theirs.package);
        fill(node, "cores", mine.cores, theirs.cores);
        if (mine.caches.empty()) mine.caches = theirs.caches;
        // Of the process, not of the machine.
        if (!theirs.allowed.empty()) mine.allowed = theirs.allowed;
    }
    void fill_pci(int node, Pci& mine, const Pci& theirs) {
        fill(node, "class", mine.device_class, theirs.device_class);
        fill(node, "vendor", mine.vendor, theirs.vendor);
        fill(node, "device", mine.device, theirs.device);
        fill(node, "subsystem_vendor", mine.subsystem_vendor, theirs.subsystem_vendor);
        fill(node, "subsystem_device", mine.subsystem_device, theirs.subsystem_device);
        // "16 GT/s" and "16.0 GT/s PCIe" are the same speed.
        if (mine.link_speed.empty() || pci_transfers(mine.link_speed) != pci_transfers(theirs.link_speed))
            fill(node, "link_speed", mine.link_speed, theirs.link_speed);
        fill(node, "link_width", mine.link_width, theirs.link_width);
        fill(node, "virtual_of", mine.virtual_of, theirs.virtual_of);
    }
    void fill_gpu(int index, Node& node, const Gpu& theirs) {
        Gpu& mine = node.gpu;
        if (mine.dev != unknown || claims_.dev(NodeKind::gpu, node.host, theirs.dev))
            fill(index, "dev", mine.dev, theirs.dev);
        if (mine.rank != unknown || claims_.rank(theirs.rank)) fill(index, "rank", mine.rank, theirs.rank);
        fill(index, "sm", mine.sm, theirs.sm);
        fill(index, "gdr", mine.gdr, theirs.gdr);
        fill(index, "keep", mine.keep, theirs.keep);
        fill(index, "mlopart", mine.mlopart, theirs.mlopart);
        fill(index, "gcn", mine.gcn, theirs.gcn);
        fill(index, "domain", mine.domain, theirs.domain);
    }
    void fill_port(int index, Node& node, const Port& theirs) {
        Port& mine = node.port;
        fill(index, "name", mine.name, theirs.name);
        if (mine.dev != unknown || claims_.dev(NodeKind::port, node.host, theirs.dev))
            fill(index, "dev", mine.dev, theirs.dev);
        fill(index, "speed", mine.speed, theirs.speed);
        fill(index, "port", mine.number, theirs.number);
        fill(index, "guid", mine.guid, theirs.guid);
        fill(index, "maxconn", mine.maxconn, theirs.maxconn);
        fill(index, "gdr", mine.gdr, theirs.gdr);
        fill(index, "coll", mine.coll, theirs.coll);
        fill(index, "keep", mine.keep, theirs.keep);
        fill(index, "latency", mine.latency_us, theirs.latency_us);
        fill(index, "interface", mine.interface, theirs.interface);
        fill(index, "link_layer", mine.link_layer, theirs.link_layer);
        fill(index, "gid", mine.gid, theirs.gid);
    }

    // If a node has links of a kind in the file, it has all of them there.
    Status take(const Statement& theirs) {
        const int source = index_[size_t(theirs.source)];
        if (source < 0) return ok();
        const Node& node = graph_.node(source);
        if (node.kind != (theirs.kind == LinkKind::local ? NodeKind::pci : NodeKind::gpu)) return ok();
        const auto stated = stated_.find({source, theirs.kind});
        if (stated == stated_.end()) {
            Statement statement = theirs;
            statement.source = source;
            statement.source_line = {};
            return graph_.state(std::move(statement));
        }
        for (const Statement* mine : stated->second) {
            if (mine->target != theirs.target) continue;
            const auto rate = [](const Statement& it) {
                return it.kind == LinkKind::c2c ? fmt::format(" of {} MB/s", it.bandwidth_mbs) : std::string();
            };
            if (mine->count != theirs.count || mine->bandwidth_mbs != theirs.bandwidth_mbs)
                say(notes_, "{} has {} {} links{}{}{} in the file, but {}{} as detected: the file's are kept",
                    graph_.name(source), mine->count, name_of(mine->kind), mine->target.empty() ? "" : " to ",
                    mine->target, rate(*mine), theirs.count, rate(theirs));
            return ok();
        }
        say(notes_, "another {} link of {}, to {}, was detected, which the file does not state: it is left out",
            name_of(theirs.kind), graph_.name(source), theirs.target);
        return ok();
    }

    const Graph& detected_;
    Graph graph_;
    std::vector<std::string> notes_;
    std::vector<int> hosts_;  // of each detected one
    std::vector<int> index_;  // of each detected node
    UniqueNumbers claims_;
    // Of the file: statements by node and kind, ports of a NIC, NICs without a bus id by host and port name.
    std::map<std::pair<int, LinkKind>, std::vector<const Statement*>> stated_;
    std::map<int, std::vector<int>> ports_;
    std::map<std::pair<int, std::string>, int> software_nics_;
    std::map<int, std::string> names_;  // of a port of each detected NIC
};

}  // namespace

Result<Merged> merge(const Graph& file, const Graph& detected) { return Merger(file, detected).merge(); }

}  // namespace weft::internal::topology
