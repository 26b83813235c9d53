#include "src/train/sharding/unit_order.hpp"

#include <algorithm>
#include <vector>

#include "src/base/options.hpp"

namespace weft::internal::train {

namespace {

struct OrderedCall {
    UnitCall call = UnitCall::gather;
    int32_t unit = 0;
    bool operator==(const OrderedCall&) const = default;
};

const char* verb(UnitCall call) { return call == UnitCall::gather ? "gathers" : "reduces"; }

}  // namespace

Status check_order(const Peers& peers, UnitCall call, int unit) {
    if (options().check_units == 0) return ok();
    const OrderedCall own{call, unit};
    std::vector<OrderedCall> all(size_t(peers.ranks()));
    WEFT_TRY(peers.all_gather(&own, all.data(), sizeof own));
    const auto other = std::find_if(all.begin(), all.end(), [&](const OrderedCall& each) { return each != all[0]; });
    if (other == all.end()) return ok();
    const size_t differs = size_t(other - all.begin());
    const std::vector<OrderedCall> seen = all;
    // No rank aborts the communicator while another one is inside the first exchange.
    (void)peers.all_gather(&own, all.data(), sizeof own);
    const int rank = peers.member(int(differs)), first = peers.member(0);
    return fail(error::train_order,
                "rank {} {} unit {}, while rank {} {} unit {}: gather and reduce the same units in one order on all "
                "ranks",
                rank, verb(seen[differs].call), seen[differs].unit, first, verb(seen[0].call), seen[0].unit)
        .about({.rank = rank, .peer = first});
}

}  // namespace weft::internal::train
