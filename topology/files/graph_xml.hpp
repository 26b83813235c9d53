// graph_xml.hpp: reads and writes NCCL's graph files: the channels of a search, or channels that a user wants.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "topology/model/paths.hpp"

namespace weft::internal::topology {

// NCCL's numbers.
enum class Pattern : uint8_t { balanced_tree = 1, split_tree, tree, ring, nvls, collnet_direct };
const char* name_of(Pattern pattern);

// A stop of a channel.
struct Stop {
    NodeKind kind = NodeKind::gpu;  // gpu; port, which the file calls net; or cpu, which NCCL's files do not have
    int dev = 0;                    // Gpu::dev, Port::dev, Cpu::numaid
    int rank = unknown;
    int host = 0;  // of the machine's hosts, if NVLink joins several
    bool operator==(const Stop&) const = default;
};

// The number of each node in files: the known one, else its index among the devices of its kind on its host. If several
// have one dev, the first keeps it, and the others get unused numbers.
std::vector<int> devs_of(const Graph& graph);

struct ChannelPath {
    std::vector<Stop> stops;  // in order; between hosts the first and the last are ports
    bool operator==(const ChannelPath&) const = default;
};

struct ChannelGraph {
    int id = 0;  // NCCL: 0 ring, 1 tree, 2 collnet, 3 nvls
    Pattern pattern = Pattern::ring;
    // whether a channel may leave by one NIC and arrive by another: 0 no, 1 yes, 2 only if that is better
    int cross_nic = 0;
    double intra_gbs = 0;  // of each channel, within a host
    double inter_gbs = 0;  // and between hosts
    double latency_inter_us = 0;
    PathClass type_intra = PathClass::loc;  // the farthest class that a channel uses within a host
    PathClass type_inter = PathClass::loc;  // and from a GPU to its port
    bool same_channels = true;              // the channels are those of the ring again
    std::vector<ChannelPath> channels;
    bool operator==(const ChannelGraph&) const = default;
};

struct ReadGraphs {
    std::vector<ChannelGraph> graphs;
    std::vector<std::string> notes;  // ignored parts, a sentence each, with the line
};

// weftInvalidArgument: the fault, with line and column.
Result<ReadGraphs> read_graphs(std::string_view xml);
std::string write_graphs(const std::vector<ChannelGraph>& graphs);

}  // namespace weft::internal::topology
