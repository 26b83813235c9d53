// settings.hpp: how a process uses its RDMA devices. The defaults suit most networks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "src/drivers/verbs/device_filter.hpp"
#include "src/drivers/verbs/gid.hpp"
#include "src/drivers/verbs/path.hpp"
#include "src/drivers/verbs/queue_pair.hpp"

namespace weft::internal::verbs {

// A value.
struct Settings {
    std::string library;   // as WEFT_VERBS_LIBRARY
    DeviceFilter devices;  // which devices and ports to use
    GidRules gids;         // of the own ports
    // Service level, traffic class, timeout, retries. Soft-RoCE never ends after 7 retries.
    PathOptions path{.timeout = 18, .retries = 6};
    std::optional<uint16_t> partition_key;  // a value; none: the port's first key with full membership
    int rails = 1;                          // ports of this host that a link uses, at most
    int pairs_per_rail = 1;                 // queue pairs: several spread over more paths of a network
    size_t striped_bytes = 128 << 10;       // messages of at least this size are split over all queue pairs
    QueuePairOptions pair{.send_requests = 256, .receive_requests = 1'024, .send_sges = 2, .inline_bytes = 220};
};

// The settings of this process. A link reads them once, when it is made. Thread-safe.
Settings settings();
// For tests: replaces the settings of links that are made later.
void set_settings(const Settings& settings);

}  // namespace weft::internal::verbs
