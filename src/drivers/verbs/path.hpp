// path.hpp: the path between two ports, the numbers with which a queue pair connects, and the text of a request that
// failed on it. Pure functions.
#pragma once
#include <optional>
#include <string>

#include "src/base/result.hpp"
#include "src/drivers/verbs/gid.hpp"
#include "src/drivers/verbs/layout.hpp"

namespace weft::internal::verbs {

// One end of a path. A value that the two processes exchange.
struct PathEnd {
    std::string host, device;
    int port = 1;
    int link_layer = 0;  // link_infiniband, link_ethernet
    int mtu = 0;         // the active one, 1 (256 bytes) to 5 (4,096 bytes)
    uint16_t lid = 0;
    bool needs_grh = false;  // the port's GRH_REQUIRED flag
    PortGid gid;
    uint32_t pair = 0;      // the number of its queue pair
    uint32_t sequence = 0;  // its first packet's number, 24 bits
    std::optional<abi::Ece> ece = {};
};

struct PathOptions {
    int service_level = 0;
    int traffic_class = 0;  // only used with a GRH: some fabrics drop it otherwise
    int hop_limit = 64;     // 1 would end at the first router
    uint32_t flow_label = 0;
    int timeout = 20;  // 4.096 us * 2^timeout
    int retries = 7;
    // From the first try to the failure.
    int64_t repeat_us() const { return (4'096ll << timeout) / 1'000 * (retries + 1); }
    int reads = 16;  // outstanding ones, as far as the devices can
};

int mtu_bytes(int mtu);
// The smaller active MTU of both ends.
int path_mtu(const PathEnd& own, const PathEnd& peer);
// Whether packets carry GIDs: on Ethernet, between subnets of InfiniBand, or if a port asks for it.
bool needs_grh(const PathEnd& own, const PathEnd& peer);
// verbs.path: the ends have different link layers, or an InfiniBand port has no LID.
Result<abi::Address> path_address(const PathEnd& own, const PathEnd& peer, const PathOptions& options);

// "host0 mlx5_0:1 GID 3 10.0.0.1 QP 0x12"
std::string described(const PathEnd& end);
std::string completion_status_text(int status);
// Whether the port, the device or the network may be the cause, so that the request may succeed on another path. The
// others are defects: of a request, of memory, of rights.
bool is_of_path(int status);
// verbs.completion, in one sentence: both ends, the path, the status, the vendor's code, and a hint.
Status completion_error(const abi::Completion& completion, const PathEnd& own, const PathEnd& peer,
                        const PathOptions& options);

}  // namespace weft::internal::verbs
