// simulate_scene.hpp: turns the options of `weft schedule simulate` into machines, ranks and calls.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"
#include "src/selector/network_kinds.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "src/simulator/simulator.hpp"
#include "tools/algorithm_file.hpp"
#include "tools/simulate_numbers.hpp"
#include "topology/search/job.hpp"

namespace weft::internal::tools {

inline constexpr int simulated_ranks_most = 1'000'000;  // a simulation of all of them fits some gigabytes of memory
inline constexpr int simulated_channels_most = 64;
inline constexpr uint64_t simulated_bytes_most = uint64_t(1) << 48;  // the maximum in tuning files

struct SimulateRequest {
    std::string algorithm;                           // or its file; "all": all candidates
    FileChoice said;                                 // of `collective` and so on
    std::shared_ptr<const FileAlgorithm> file = {};  // read_algorithm_file(); null: the algorithm has a name
    std::string collective = name_of(Collective::all_reduce);
    std::string host;          // kind; empty: not given
    std::string topology;      // file; empty: equal hosts of that kind
    std::string protocol;      // empty: not given
    std::string network;       // kind of RDMA devices; empty: the host's own
    uint64_t bytes = 1 << 20;  // of the whole
    uint64_t tile_bytes = 0;
    int root = 0;
    int ranks = 0, hosts = 0;                                     // 0: not given
    int rails = 1;                                                // ports that carry the messages of two ranks at once
    int channels = 0;                                             // 0: as many as fill the links
    std::vector<std::string> slow_links, slow_hosts, slow_ranks;  // NAME=FACTOR
    std::vector<std::string> failed_links, failed_hosts;
    std::vector<std::string> constants;  // NAME=VALUE
    bool every_rank = false;
    bool anyway = false;  // ignore the time that it takes
    bool as_json = false;
    int links_shown = 5;
    std::string trace;  // file; empty: none
    std::string tune;   // file; empty: none
    int trace_ranks = 64;
};

struct Scene {
    std::vector<const Algorithm*> rows;  // one row, or all candidates
    Layout layout = {};
    Parameters parameters = {};
    HostKind kind = {};
    std::vector<NamedNumber> times = {};  // given in place of those of the protocol and network
    Protocol protocol = Protocol::simple;
    int hosts = 1;
    std::string machines;                    // "dgx-h100", "machine.xml"
    double net_bytes_per_us = 0;             // of each link
    const NetworkKind* network = nullptr;    // as in the request
    int64_t link_mbps = 0;                   // of that network; all rails of a link together
    int net_links = 1;                       // ports of each host; each port serves its own ranks
    std::shared_ptr<topology::Graph> graph;  // null: equal hosts of the kind
    topology::Job job = {};                  // on the graph
    bool alternates = false;                 // its rings pass every second machine in reverse
    double links_gbs = 0;                    // the sum over its rings; 0: unknown
    std::vector<std::string> notes = {};     // from the file
};

// If the algorithm is in a file: reads and proves it, and copies its purpose into the request.
Status read_algorithm_file(SimulateRequest& request);
Result<Scene> scene_of(const SimulateRequest& request);
// Makes the layout and its rings: equal hosts of the kind, or the job as it is.
Status seat_on_equal(const SimulateRequest& request, int hosts, int ranks_a_host, Scene& scene);
Status seat_on_graph(const SimulateRequest& request, Scene& scene);
// Gives the scene the rings of a job, if there are some, and as many channels.
void take_rings_of(const SimulateRequest& request, const topology::Job& job, Scene& scene);
// Finds the requested algorithms, of which at least one must be able to run. `root`: in the scene's numbering.
Status find_rows(const SimulateRequest& request, int root, Scene& scene);
// The constants of the fabric differ from row to row.
Result<std::unique_ptr<Fabric>> fabric_of(const Scene& scene, const Algorithm& row);
// The call, with the times of the scene.
SimulatedCall call_of(const SimulateRequest& request, const Scene& scene, const Algorithm& row);

}  // namespace weft::internal::tools
