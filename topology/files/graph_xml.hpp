// graph_xml.hpp: NCCL's graph files, read and written: the channels that a search has found, or that somebody wants.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "topology/model/paths.hpp"

namespace weft::internal::topology {

// By NCCL's numbers.
enum class Pattern : uint8_t { balanced_tree = 1, split_tree, tree, ring, nvls, collnet_direct };
const char* name_of(Pattern pattern);

// A stop of a channel.
struct Stop {
    NodeKind kind = NodeKind::gpu;  // gpu, or port, which the file calls net, or cpu, which NCCL's files do not have
    int dev = 0;                    // Gpu::dev, Port::dev, Cpu::numaid
    int rank = unknown;
    int host = 0;  // of the machine's, where NVLink joins several
    bool operator==(const Stop&) const = default;
};

// By which files name each node: what is known, else its place among the devices of its kind on its host. If several
// have one dev, the first keeps it, and the others have numbers that none has.
std::vector<int> devs_of(const Graph& graph);

struct ChannelPath {
    std::vector<Stop> stops;  // in order; between hosts the first and the last are ports
    bool operator==(const ChannelPath&) const = default;
};

struct ChannelGraph {
    int id = 0;  // NCCL: 0 ring, 1 tree, 2 collnet, 3 nvls
    Pattern pattern = Pattern::ring;
    int cross_nic = 0;     // a channel may leave by one NIC and arrive by another: 0 no, 1 yes, 2 only if it is better
    double intra_gbs = 0;  // of each channel, within a host
    double inter_gbs = 0;  // and between hosts
    double latency_inter_us = 0;
    PathClass type_intra = PathClass::loc;  // the farthest that a channel takes, within a host
    PathClass type_inter = PathClass::loc;  // and from a GPU to its port
    bool same_channels = true;              // the channels are those of the ring once more
    std::vector<ChannelPath> channels;
    bool operator==(const ChannelGraph&) const = default;
};

struct ReadGraphs {
    std::vector<ChannelGraph> graphs;
    std::vector<std::string> notes;  // what was skipped, a sentence each, with its line
};

// weftInvalidArgument: what is wrong, with line and column.
Result<ReadGraphs> read_graphs(std::string_view xml);
std::string write_graphs(const std::vector<ChannelGraph>& graphs);

}  // namespace weft::internal::topology
