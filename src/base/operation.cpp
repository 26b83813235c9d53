#include "src/base/operation.hpp"

#include <fmt/core.h>

namespace weft::internal {

const char* Operation::name_of_reduction() const {
    if (scales()) return "premulsum";
    if (!calls_function()) return name_of(weftRedOp_t(op));
    return keeps_order() ? "user's reduction in rank order" : "user's reduction";
}

std::string Operation::text() const {
    if (collective == Collective::none) return "no operation";
    if (is_wefts_own())
        return purpose == Purpose::split    ? "a split of the communicator"
               : purpose == Purpose::window ? "a registration of a window"
               : purpose == Purpose::copies ? "an all_gather or all_to_all by copy engines (blockPolicy)"
                                            : "a deregistration of a window";
    const CollectiveFacts facts = facts_of(collective);
    if (collective == Collective::barrier)
        return fmt::format("{}{}", facts.name, space == Space::device ? " of CUDA streams" : "");
    return fmt::format(
        "{} of {}{}{}{}{}{}", facts.name,
        uneven(collective) ? "" : fmt::format("{} ", coalesced != 0 ? count - 1 : count), name_of(weftDataType_t(type)),
        facts.reduces ? fmt::format(", {}", name_of_reduction()) : "",
        facts.rooted ? fmt::format(", root {}", root) : "", space == Space::device ? ", in device memory" : "",
        coalesced != 0 ? fmt::format(" (made of {} calls of a group, whose counts hash to {:x}; WEFT_JOIN_BYTES)",
                                     coalesced_count(), uint16_t(coalesced))
                       : "");
}

ErrorId mismatch_between(const Operation& one, const Operation& other) {
    if (one.collective != other.collective || one.space != other.space || one.purpose != other.purpose)
        return error::mismatch_call;
    if (one.root != other.root) return error::mismatch_root;
    if (one.type != other.type) return error::mismatch_datatype;
    if (one.op != other.op) return error::mismatch_reduction;
    if (one.count != other.count) return error::mismatch_count;
    return one.coalesced != other.coalesced ? error::mismatch_call : error::mismatch_algorithm;
}

}  // namespace weft::internal
