// unit_order.hpp: a check that all ranks gather and reduce the same units in one order, for debugging.
#pragma once
#include <cstdint>

#include "src/base/result.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

enum class UnitCall : uint32_t { gather, reduce };

// Before the call for a unit. All ranks of `peers` call it, or none. Does nothing unless WEFT_CHECK_UNITS is set: then
// the ranks compare their calls, and each one gets an error about the first difference.
Status check_order(const Peers& peers, UnitCall call, int unit);

}  // namespace weft::internal::train
