// simulate_scene.hpp: what the words of `weft schedule simulate` stand for: the machines, the ranks on them, and the calls
// to be simulated.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "src/simulator/simulator.hpp"
#include "tools/algorithm_file.hpp"
#include "topology/search/job.hpp"

namespace weft::internal::tools {

inline constexpr int simulated_ranks_most = 1'000'000;  // what fits some gigabytes of memory, every rank simulated
inline constexpr int simulated_channels_most = 64;
inline constexpr uint64_t simulated_bytes_most = uint64_t(1) << 48;  // as tuning files have them at most

struct SimulateRequest {
    std::string algorithm;                           // or its file; "all": every one that can serve
    FileChoice said;                                 // of `collective` and so on
    std::shared_ptr<const FileAlgorithm> file = {};  // read_algorithm_file(); null: the algorithm has a name
    std::string collective = name_of(Collective::all_reduce);
    std::string host;          // kind; empty: not said
    std::string topology;      // file; empty: equal hosts of that kind
    std::string protocol;      // empty: not said
    uint64_t bytes = 1 << 20;  // of the whole
    uint64_t tile_bytes = 0;
    int root = 0;
    int ranks = 0, hosts = 0;                                     // 0: not said
    int channels = 0;                                             // 0: as many as fill the links
    std::vector<std::string> slow_links, slow_hosts, slow_ranks;  // NAME=FACTOR
    std::vector<std::string> failed_links, failed_hosts;
    std::vector<std::string> constants;  // NAME=VALUE
    bool every_rank = false;
    bool anyway = false;  // however long it takes
    bool as_json = false;
    int links_shown = 5;
    std::string trace;  // file; empty: none
    std::string tune;   // likewise
    int trace_ranks = 64;
};

struct Scene {
    std::vector<const Algorithm*> rows;  // one, or all that can serve
    Layout layout = {};
    Parameters parameters = {};
    HostKind kind = {};
    Protocol protocol = Protocol::simple;
    int hosts = 1;
    std::string machines;                    // "dgx-h100", "machine.xml"
    double net_bytes_per_us = 0;             // of a port
    int net_links = 1;                       // of a host: ports, each of its own ranks
    std::shared_ptr<topology::Graph> graph;  // null: equal hosts of the kind
    topology::Job job = {};                  // on the graph
    bool alternates = false;                 // its rings pass each second machine the other way round
    double links_gbs = 0;                    // that its rings carry together; 0: unknown
    std::vector<std::string> notes = {};     // of the file
};

// If the algorithm is a file's: reads and proves it, and puts what it is for into the request.
Status read_algorithm_file(SimulateRequest& request);
Result<Scene> scene_of(const SimulateRequest& request);
// So many hosts of the kind, alike, or the job as it is: the layout, and rings that fit.
Status seat_on_equal(const SimulateRequest& request, int hosts, int ranks_a_host, Scene& scene);
Status seat_on_graph(const SimulateRequest& request, Scene& scene);
// The rings that fit a job, if there are some, for the scene's ranks, and as many channels.
void take_rings_of(const SimulateRequest& request, const topology::Job& job, Scene& scene);
// Those that are asked for, of which one at least can serve. `root`: as the scene's ranks are numbered.
Status find_rows(const SimulateRequest& request, int root, Scene& scene);
// Constants differ from row to row.
Result<std::unique_ptr<Fabric>> fabric_of(const Scene& scene, const Algorithm& row);
// For the time of the scene.
SimulatedCall call_of(const SimulateRequest& request, const Scene& scene, const Algorithm& row);

}  // namespace weft::internal::tools
