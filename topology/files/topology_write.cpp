// topology_write.cpp: writes the statements of a graph in NCCL's form, in the order of nodes.
#include <algorithm>

#include "topology/files/topology_xml.hpp"
#include "topology/files/xml_writing.hpp"

namespace weft::internal::topology {

namespace {

// "L2:2097152:2:16,L3:33554432:16:2": level, bytes, threads that share one, number.
std::string write_caches(const std::vector<Cache>& caches) {
    std::string text;
    for (const Cache& it : caches)
        text += fmt::format("{}L{}:{}:{}:{}", text.empty() ? "" : ",", it.level, it.bytes, it.threads, it.count);
    return text;
}

class TopologyWriter {
  public:
    TopologyWriter(const Graph& graph)
        : graph_(graph), children_(graph.nodes().size()), statements_(graph.nodes().size()) {
        for (size_t i = 0; i < graph.nodes().size(); ++i)
            if (graph.nodes()[i].parent >= 0) children_[size_t(graph.nodes()[i].parent)].push_back(int(i));
        for (const Statement& it : graph.statements()) statements_[size_t(it.source)].push_back(&it);
    }
    std::string write() {
        xml_.open("system");
        xml_.attribute("version", of_rccl() ? 2 : 1);
        for (size_t i = 0; i < graph_.nodes().size(); ++i)
            if (graph_.nodes()[i].kind == NodeKind::cpu) write_cpu(int(i));
        xml_.close();
        return xml_.take();
    }

  private:
    // RCCL's files have AMD GPUs with XGMI links.
    bool of_rccl() const {
        return std::any_of(graph_.nodes().begin(), graph_.nodes().end(),
                           [](const Node& it) { return !it.gpu.gcn.empty(); });
    }
    void known(const char* name, const std::string& value) {
        if (!value.empty()) xml_.attribute(name, value);
    }
    void known(const char* name, int value) {
        if (value != unknown) xml_.attribute(name, value);
    }

    void write_cpu(int index) {
        const Node& node = graph_.node(index);
        xml_.open("cpu");
        known("host_hash", graph_.hosts()[size_t(node.host)]);
        xml_.attribute("numaid", node.cpu.numaid);
        known("affinity", node.cpu.affinity);
        known("arch", node.cpu.arch);
        known("vendor", node.cpu.vendor);
        known("familyid", node.cpu.family);
        known("modelid", node.cpu.model);
        known("package", node.cpu.package);
        known("cores", node.cpu.cores);
        known("caches", write_caches(node.cpu.caches));
        known("allowed", node.cpu.allowed);
        write_children(index);
        xml_.close();
    }
    void write_children(int index) {
        for (const int child : children_[size_t(index)]) {
            // A NIC of software has no bus id.
            if (graph_.node(child).busid.empty())
                write_nic(child);
            else
                write_pci(child);
        }
    }
    // Bridges are nested at most as deep as in files that are read.
    void write_pci(int index) {
        const Node& node = graph_.node(index);
        xml_.open("pci");
        xml_.attribute("busid", node.busid);
        known("class", node.pci.device_class);
        known("vendor", node.pci.vendor);
        known("device", node.pci.device);
        known("subsystem_vendor", node.pci.subsystem_vendor);
        known("subsystem_device", node.pci.subsystem_device);
        known("link_speed", node.pci.link_speed);
        known("link_width", node.pci.link_width);
        known("virtual_of", node.pci.virtual_of);
        for (const Statement* it : statements_[size_t(index)]) {
            if (it->kind != LinkKind::local) continue;
            xml_.open("pcilink");
            xml_.attribute("target", it->target);
            xml_.close();
        }
        if (node.kind == NodeKind::gpu) write_gpu(index);
        if (node.kind == NodeKind::nic) write_nic(index);
        if (node.kind == NodeKind::pci) write_children(index);
        xml_.close();
    }
    void write_gpu(int index) {
        const Gpu& gpu = graph_.node(index).gpu;
        const auto& statements = statements_[size_t(index)];
        // All facts are those of its class.
        const auto& parts = graph_.node(index).parts;
        const bool by_class = kind_of(graph_.node(index).pci) == NodeKind::gpu;
        if (gpu == Gpu() && statements.empty() && parts.empty() && by_class) return;
        open_gpu(gpu);
        for (const Statement* it : statements) {
            if (it->kind == LinkKind::nvlink) {
                xml_.open(gpu.gcn.empty() ? "nvlink" : "xgmi");
                xml_.attribute("target", it->target);
                xml_.attribute("count", it->count);
                known("tclass", it->target_class);
                xml_.close();
            } else if (it->kind == LinkKind::c2c) {
                xml_.open("c2c");
                xml_.attribute("bw", it->bandwidth_mbs);
                xml_.attribute("count", it->count);
                xml_.close();
            }
        }
        xml_.close();
        for (const Gpu& part : parts) {
            open_gpu(part);
            xml_.close();
        }
    }
    void open_gpu(const Gpu& gpu) {
        xml_.open("gpu");
        known("dev", gpu.dev);
        known("sm", gpu.sm);
        known("rank", gpu.rank);
        known("gdr", gpu.gdr);
        known("keep", gpu.keep);
        known("mlopart", gpu.mlopart);
        known("gcn", gpu.gcn);
        known("domain", gpu.domain);
    }
    void write_nic(int index) {
        if (children_[size_t(index)].empty() && kind_of(graph_.node(index).pci) == NodeKind::nic) return;
        xml_.open("nic");
        for (const int child : children_[size_t(index)]) {
            const Port& port = graph_.node(child).port;
            xml_.open("net");
            known("name", port.name);
            known("dev", port.dev);
            known("speed", port.speed);
            known("port", port.number);
            known("guid", port.guid);
            if (port.latency_us >= 0) xml_.attribute("latency", port.latency_us);
            known("maxconn", port.maxconn);
            known("gdr", port.gdr);
            known("coll", port.coll);
            known("keep", port.keep);
            known("interface", port.interface);
            known("link_layer", port.link_layer);
            known("gid", port.gid);
            xml_.close();
        }
        xml_.close();
    }

    const Graph& graph_;
    std::vector<std::vector<int>> children_;
    std::vector<std::vector<const Statement*>> statements_;
    XmlWriter xml_;
};

}  // namespace

std::string write_topology(const Graph& graph) { return TopologyWriter(graph).write(); }

}  // namespace weft::internal::topology
