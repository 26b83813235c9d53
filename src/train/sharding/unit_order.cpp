#include "src/train/sharding/unit_order.hpp"

#include <algorithm>
#include <vector>

#include "src/base/options.hpp"

namespace weft::internal::train {

namespace {

std::string unit_call_text(const UnitCall& call) {
    switch (call.kind) {
        case UnitCall::Kind::from_shards: return fmt::format("gathers unit {} from all shards", call.unit);
        case UnitCall::Kind::from_reshard_group: return fmt::format("gathers unit {} in its reshard group", call.unit);
        case UnitCall::Kind::kept: return fmt::format("gathers unit {}, which it has kept", call.unit);
        case UnitCall::Kind::reduce: return fmt::format("reduces unit {} with weftTrainSynchronize", call.unit);
        case UnitCall::Kind::reduce_and_accumulate: break;
    }
    return fmt::format("reduces unit {} with weftTrainAccumulate", call.unit);
}

}  // namespace

bool checks_order() { return options().check_units != 0; }

Status check_order(const Peers& peers, UnitCall own) {
    if (!checks_order()) return ok();
    std::vector<UnitCall> all(size_t(peers.ranks()));
    WEFT_TRY(peers.all_gather(&own, all.data(), sizeof own));
    const auto other = std::find_if(all.begin(), all.end(), [&](const UnitCall& each) { return each != all[0]; });
    if (other == all.end()) return ok();
    const size_t differs = size_t(other - all.begin());
    const std::vector<UnitCall> seen = all;
    // No rank aborts the communicator while another one is inside the first exchange.
    (void)peers.all_gather(&own, all.data(), sizeof own);
    const int rank = peers.member(int(differs)), first = peers.member(0);
    return fail(error::train_order,
                "rank {} {}, while rank {} {}: gather, release and reduce the same units in one order, with one pass "
                "and one mode, on all ranks",
                rank, unit_call_text(seen[differs]), first, unit_call_text(seen[0]))
        .about({.rank = rank, .peer = first});
}

}  // namespace weft::internal::train
