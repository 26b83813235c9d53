#include "src/base/operation.hpp"

#include <fmt/core.h>

namespace weft {

std::string Operation::text() const {
    if (collective == Collective::none) return "no operation";
    if (splits()) return "a split of the communicator";
    const CollectiveFacts facts = facts_of(collective);
    if (collective == Collective::barrier) return facts.name;
    return fmt::format(
        "{} of {}{}{}{}{}", facts.name, uneven(collective) ? "" : fmt::format("{} ", count),
        name_of(weftDataType_t(type)), facts.reduces ? fmt::format(", {}", name_of(weftRedOp_t(op))) : "",
        facts.rooted ? fmt::format(", root {}", root) : "", space == Space::device ? ", in device memory" : "");
}

}  // namespace weft
