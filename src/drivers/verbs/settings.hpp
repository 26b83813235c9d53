// settings.hpp: the user's options for InfiniBand and RoCE as one value, which transports and reports read.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/options.hpp"
#include "src/base/result.hpp"
#include "src/drivers/verbs/device_filter.hpp"
#include "src/drivers/verbs/gid.hpp"
#include "src/drivers/verbs/path.hpp"

namespace weft::internal::verbs {

// The farthest path between a GPU and a device that accesses its memory, as in NCCL.
enum class GdrLevel { loc, pix, pxb, phb, sys };

// Which partition key a port uses: one of this value or index, or else the first with full membership.
struct PartitionKey {
    std::optional<uint16_t> value;
    int index = -1;  // -1: not given
    // The place in a port's table; 0, if no key has full membership. `name` is the port's. option.value: the table lacks
    // the wanted key.
    Result<int> choose(std::span<const uint16_t> table, const std::string& name) const;
};

struct AdaptiveRouting {
    std::optional<bool> wanted;    // none: on InfiniBand
    size_t least_bytes = 8 << 10;  // of messages above
    bool on(int link_layer) const { return wanted.value_or(link_layer == link_infiniband); }
    // Data of larger messages is written ahead of its immediate data.
    size_t ahead_bytes(int link_layer) const { return on(link_layer) ? least_bytes : SIZE_MAX; }
};

struct IbSettings {
    bool disabled = false;
    DeviceFilter devices;           // which devices and ports to use
    bool devices_by_alias = false;  // NCCL's list, which may name devices of other hosts
    GidRules gids;                  // of the own ports; see gid_rules()
    bool gid_index_by_alias = false;
    PathOptions path{.retries = 6};  // service level, traffic class, retries; see path_with() for the timeout
    bool timeout_given = false;      // path.timeout is the user's
    PartitionKey partition_key;
    AdaptiveRouting adaptive_routing;
    int pairs_per_rail = 0;                    // queue pairs of two processes; 0: see pairs_on()
    size_t striped_bytes = 128 << 10;          // messages from here on are divided among rails and queue pairs
    bool relaxed_ordering = true, ece = true;  // where library and devices have them
    GdrLevel gdr_level = GdrLevel::pxb;
    std::vector<std::string> warnings = {};  // values of NCCL's variables that are left aside, a sentence each

    // `rails` is how many ports this process uses. `link_layer` is link_infiniband or link_ethernet.
    PathOptions path_with(int rails) const;
    // For a port with these GIDs. NCCL's index does not count where the port has no such GID.
    GidRules gid_rules(std::span<const PortGid> own) const;
    int pairs_on(int link_layer) const;
};

// option.value, option.conflict: values of Weft's own variables that cannot be used. A wrong value of an alias is a warning.
// Reentrant.
Result<IbSettings> read_ib_settings(const Options& options);

}  // namespace weft::internal::verbs
