// unit_order.hpp: a check that all ranks gather and reduce the same units in one order, for debugging.
#pragma once
#include <cstdint>

#include "src/base/result.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

// A call for a unit. Values.
struct UnitCall {
    // The first three gather the unit. The pass of its last release, or the stage, has chosen among them.
    enum class Kind : uint32_t { from_shards, from_reshard_group, kept, reduce, reduce_and_accumulate };
    Kind kind = Kind::from_shards;
    int32_t unit = 0;
    bool operator==(const UnitCall&) const = default;
};

bool checks_order();
// Before the call. All ranks of the model, which are the ranks of `peers`, call it, or none. Does nothing unless
// WEFT_CHECK_UNITS is set: then the ranks compare their calls, and each one gets an error about the first difference.
Status check_order(const Peers& peers, UnitCall own);

}  // namespace weft::internal::train
