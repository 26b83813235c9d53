// search.hpp: the channels of a job: rings side by side through all ranks, as many and as wide as links allow, chains
// and trees, by which NICs they leave each machine, and how near that comes to what the links allow at all.
//
// Machines of one kind have the same channels, so a job costs as much as its kinds. The result is a function of the job alone: every rank finds the same, whatever machine it runs on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "topology/files/graph_xml.hpp"
#include "topology/search/job.hpp"
#include "topology/search/packing.hpp"

namespace weft::internal::topology {

enum class RailUse : uint8_t { only, any, best };  // `only`: what leaves by a NIC arrives by that of the same index

struct SearchOptions {
    int channels_most = 32;
    // More than one block of a GPU moves is no use to a channel (NCCL reckons 44 to 65 of its kernels).
    double channel_gbs_most = 50;
    // Links of a farther class are used, too, if that promises so much more: they cost latency, and NICs need them.
    double gain_least = 0.5;
    RailUse rails = RailUse::best;
    int64_t steps_most = 100'000'000;  // of all together, 0.7 s; then the best so far is taken
};

// Of all machines of one kind.
struct KindChannels : MachineKind {
    Packing packing;                   // empty: one site, and one machine
    Cut bound;                         // with the links that channels may use
    Cut bound_of_all;                  // with all links
    std::vector<ChannelGraph> graphs;  // ring, tree; NVLS gets its place behind them
};

struct Channels {
    int ranks = 0;
    std::vector<KindChannels> kinds;
    std::vector<PlacedMachine> machines;  // by their lowest rank
    int channels = 0;
    double channel_gbs = 0;  // of each ring; 0: ranks on one site, which no link joins
    // Each second machine is passed the other way round, so that what leaves by a NIC arrives by that of the same
    // index though it has come by another.
    bool alternates = false;
    double found_gbs = 0, bound_gbs = 0, bound_of_all_gbs = 0;
    int bottleneck = 0;  // the kind with the least bound
    int64_t steps = 0;   // what searches looked at
    double ratio() const { return bound_gbs > 0 ? found_gbs / bound_gbs : 1; }
};

// weftInvalidArgument: what place() says, ranks that nothing joins, machines without ports.
Result<Channels> search(const Job& job, const SearchOptions& options = {});

}  // namespace weft::internal::topology
