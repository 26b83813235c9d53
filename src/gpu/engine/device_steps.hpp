// device_steps.hpp: the catalog's algorithms that step machines run on the devices of a communicator. They follow from
// agreed facts only, so all ranks have the same. Knows no driver. Reentrant.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/gpu/domain/connections.hpp"
#include "src/selector/algo_rules.hpp"
#include "src/selector/network_kinds.hpp"

namespace weft::internal {

// From a kernel to the proxy and from the proxy to a kernel, through host memory.
inline constexpr double proxies_us = 4;

struct StepAlgorithm {
    const Algorithm* algorithm = nullptr;
    Parameters parameters;
    Layout layout;                         // as seen by rank 0
    int64_t link_mbps = 0;                 // with several hosts: of the slowest network; 0: unknown
    const NetworkKind* network = nullptr;  // of RDMA devices between the hosts; null: TCP
    bool one_machine = false;              // several hosts on one machine use its loopback
    double links_gbs = 0;                  // with one host: of all rings of its devices together; 0: unknown
    int net_links = 1;                     // with several hosts: links of each
    int blocks = 1;                        // per rank's kernel
    int at_once = 1;                       // channels that share a message and work at the same time
    bool rings = false;                    // whether `parameters.channels` rings share it
    double blocks_in_turn = 1;             // blocks per channel that work at the same time, on different tiles
    size_t most_tile_bytes = 0;            // of a part: the capacity of the slots
    size_t first_program = 0;              // index among the connections' programs
    int programs = 1;                      // one for each root, or one

    // For a whole of `bytes`; SIZE_MAX: enough tiles for every block.
    LinkCosts costs(size_t bytes = SIZE_MAX) const;
    size_t program(int root) const { return first_program + size_t(programs > 1 ? root : 0); }
    // For a whole of `bytes`.
    double predicted_us(size_t bytes) const { return algorithm->predicted_us(layout, costs(bytes), bytes); }
    // For a part of `bytes`; `wanted`: WEFT_TILE_BYTES or 0. A multiple of 64.
    size_t tile_bytes(size_t bytes, size_t wanted) const;
};

struct StepAlgorithms {
    std::vector<StepAlgorithm> rows;  // in the order of the given rows
    // By collective: the algorithms that WEFT_ALGO allows but that are not available, with the reason.
    std::map<Collective, std::string> excluded;
    cuda::Connections connections;  // of all these algorithms
};

// The requirements of step algorithms.
struct StepsWanted {
    std::span<const Algorithm> rows;  // all algorithms; they must outlive the results
    // Whether Weft's own algorithms of a collective are needed. Users' algorithms always are.
    std::function<bool(Collective)> own;
    AlgoRules rules = {};                  // of rank 0's WEFT_ALGO
    int channels = 0;                      // rank 0's WEFT_CHANNELS
    int blocks_max = 1;                    // per rank's kernel
    int64_t link_mbps = 0;                 // with several hosts: of the slowest network; 0: unknown
    const NetworkKind* network = nullptr;  // of RDMA devices between the hosts; null: TCP
    bool one_machine = false;              // several hosts on one machine use its loopback
    double links_gbs = 0;                  // with one host: of all rings of its devices together; 0: unknown
    int net_links = 1;                     // with several hosts: links of each; socket connections share one
    bool deterministic = false;            // rank 0's WEFT_DETERMINISTIC
};

// layout: as seen by rank 0. rank: the rank whose programs are made.
StepAlgorithms step_algorithms(const StepsWanted& wanted, const Layout& layout, int rank);

}  // namespace weft::internal
