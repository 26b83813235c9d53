// search.hpp: finds the channels of a job: as many and as wide rings through all ranks as links allow. Also chains and trees with the NICs by which they leave each machine. Also compares them with the bound of the links.
//
// Machines of one kind have the same channels, so the cost depends on the number of kinds. The result depends only on
// the job, so every rank finds the same one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "topology/files/graph_xml.hpp"
#include "topology/search/job.hpp"
#include "topology/search/packing.hpp"

namespace weft::internal::topology {

// `only`: data that leaves by a NIC arrives at the NIC of the same index
enum class RailUse : uint8_t { only, any, best };

struct SearchOptions {
    int channels_most = 32;
    // A channel cannot use more bandwidth than one GPU block moves (NCCL counts 44 to 65 for its kernels).
    double channel_gbs_most = 50;
    // A farther class of links is used only for this gain, because it costs latency and NICs need it.
    double gain_least = 0.5;
    RailUse rails = RailUse::best;
    int64_t steps_most = 100'000'000;  // of all searches, about 0.7 s; then the best result so far is used
};

// Of all machines of one kind.
struct KindChannels : MachineKind {
    Packing packing;                   // empty: one site and one machine
    Cut bound;                         // with the links that channels may use
    Cut bound_of_all;                  // with all links
    std::vector<ChannelGraph> graphs;  // ring and tree
};

struct Channels {
    int ranks = 0;
    std::vector<KindChannels> kinds;
    std::vector<PlacedMachine> machines;  // by their lowest rank
    int channels = 0;
    double channel_gbs = 0;  // of each ring; 0: all ranks are at one site without links
    // Every second machine is passed in reverse order, so that data leaves and arrives by NICs of the same index.
    bool alternates = false;
    double found_gbs = 0, bound_gbs = 0, bound_of_all_gbs = 0;
    int bottleneck = 0;  // the kind with the least bound
    int64_t steps = 0;   // work of the searches
    double ratio() const { return bound_gbs > 0 ? found_gbs / bound_gbs : 1; }
};

// weftInvalidArgument: as place(), or unconnected ranks, or machines without ports.
Result<Channels> search(const Job& job, const SearchOptions& options = {});

}  // namespace weft::internal::topology
