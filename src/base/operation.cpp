#include "src/base/operation.hpp"

#include <fmt/core.h>

namespace weft {

const char* name_of(Collective collective) {
    switch (collective) {
        case Collective::none: return "nothing";
        case Collective::all_reduce: return "all_reduce";
    }
    return "unknown collective";
}

std::string Operation::text() const {
    if (collective == Collective::none) return "no operation";
    return fmt::format("{} of {} {}, {}{}", name_of(collective), count, name_of(weftDataType_t(type)),
                       name_of(weftRedOp_t(op)), space == Space::device ? ", in device memory" : "");
}

}  // namespace weft
