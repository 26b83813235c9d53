// device_steps.hpp: the algorithms of the registry that step machines run on the devices of a communicator: from agreed
// facts alone, so that all ranks have the same. Knows no driver. Reentrant.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/gpu/domain/connections.hpp"
#include "src/selector/algo_rules.hpp"

namespace weft::internal {

struct StepAlgorithm {
    const Algorithm* algorithm = nullptr;
    Parameters parameters;
    Layout layout;               // as rank 0 sees it
    int64_t link_mbps = 0;       // of several hosts: the slowest network; 0: unknown
    bool one_machine = false;    // several hosts are: what goes between them takes its loopback
    double links_gbs = 0;        // of one host: what its devices' rings carry together; 0: unknown
    int net_links = 1;           // of several hosts: links of each
    int blocks = 1;              // of each rank's kernel
    int at_once = 1;             // that share a message and work at the same time
    bool rings = false;          // `parameters.channels` of them share it
    double blocks_in_turn = 1;   // of those, which work at the same time where each has another tile
    size_t most_tile_bytes = 0;  // of a part: that slots hold
    size_t first_program = 0;    // among the connections' programs
    int programs = 1;            // one for each root, or one

    // Of a whole; SIZE_MAX: of so many tiles that every block has one.
    LinkCosts costs(size_t bytes = SIZE_MAX) const;
    size_t program(int root) const { return first_program + size_t(programs > 1 ? root : 0); }
    // Of a whole.
    double predicted_us(size_t bytes) const { return algorithm->predicted_us(layout, costs(bytes), bytes); }
    // Of a part, where that has so many bytes; `wanted`: WEFT_TILE_BYTES or 0. A multiple of 64.
    size_t tile_bytes(size_t bytes, size_t wanted) const;
};

struct StepAlgorithms {
    std::vector<StepAlgorithm> rows;  // in the order of the rows given
    // By collective, of those that WEFT_ALGO allows, which are out and why.
    std::map<Collective, std::string> excluded;
    cuda::Connections connections;  // of the rows
};

// What step machines have to serve.
struct StepsWanted {
    std::span<const Algorithm> rows;  // all there are; they must outlive what is made of them
    // Of which collectives Weft's own rows; of users' all.
    std::function<bool(Collective)> own;
    AlgoRules rules = {};        // of rank 0's WEFT_ALGO
    int channels = 0;            // rank 0's WEFT_CHANNELS
    int blocks_max = 1;          // of a rank's kernel
    int64_t link_mbps = 0;       // of several hosts: the slowest network; 0: unknown
    bool one_machine = false;    // several hosts are: what goes between them takes its loopback
    double links_gbs = 0;        // of one host: what its devices' rings carry together; 0: unknown
    int net_links = 1;           // of several hosts: links of each; connections over sockets have one in common
    bool deterministic = false;  // rank 0's WEFT_DETERMINISTIC
};

// layout: as rank 0 sees it. rank: whose programs are made.
StepAlgorithms step_algorithms(const StepsWanted& wanted, const Layout& layout, int rank);

}  // namespace weft::internal
