#include "tests/topology/machines.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/catch.hpp"

namespace weft::internal::test {

using namespace topology;

static const std::filesystem::path folder = WEFT_TOPOLOGY;

std::vector<std::filesystem::path> files_in(const std::string& below) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder / below))
        if (entry.path().extension() == ".xml") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

std::string file_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

ReadTopology read_machine(const std::string& name) {
    auto read = read_topology(file_text(folder / "machines" / (name + ".xml")));
    INFO(name << ": " << read.status().sentence());
    REQUIRE(read.ok());
    return std::move(*read);
}

int node_named(const Graph& graph, const std::string& name, int host) {
    for (int i = 0; i < int(graph.nodes().size()); ++i) {
        const Node& node = graph.node(i);
        if (node.host != host) continue;
        if (node.kind == NodeKind::gpu && name == "gpu" + std::to_string(node.gpu.dev)) return i;
        if (node.kind == NodeKind::cpu && name == "cpu" + std::to_string(node.cpu.numaid)) return i;
        if (node.kind == NodeKind::port && name == node.port.name) return i;
        if (!node.busid.empty() && name == node.busid) return i;
    }
    FAIL("there is no " << name << " on host " << host);
    return -1;
}

}  // namespace weft::internal::test
