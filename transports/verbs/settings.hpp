// settings.hpp: how a process uses its RDMA devices: the user's options, and the sizes of queues.
#pragma once
#include <string>

#include "src/drivers/verbs/queue_pair.hpp"
#include "src/drivers/verbs/settings.hpp"

namespace weft::internal::verbs {

// A value.
struct Settings : IbSettings {
    std::string library = {};                 // as WEFT_VERBS_LIBRARY
    int rails = 1;                            // ports of this host on which a link sends, at most
    int64_t no_lane_us = 5'000'000;           // a link that waits for lanes fails if it has had none for so long
    uint64_t part_bytes = uint64_t(1) << 30;  // of a put or get in one request, at most: what every device takes
    QueuePairOptions pair{.send_requests = 256, .receive_requests = 1'024, .send_sges = 2, .inline_bytes = 220};
};

// The settings of this process. A link reads them once, when it is made. If the options are wrong, no device is used.
// Thread-safe.
Settings settings();
// The fault in the options for RDMA, if there is one. Thread-safe.
Status settings_status();
// For tests: replaces the settings of links that are made later.
void set_settings(const Settings& settings);

}  // namespace weft::internal::verbs
