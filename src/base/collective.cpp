#include "src/base/collective.hpp"

namespace weft::internal {

std::optional<Collective> collective_named(std::string_view name) {
    for (const Collective collective : all_collectives)
        if (name == name_of(collective)) return collective;
    return {};
}

}  // namespace weft::internal
