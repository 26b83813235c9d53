// arguments.hpp: checks that many calls have in common.
#pragma once
#include "src/base/datatype.hpp"
#include "src/base/result.hpp"

namespace weft {

inline Status check_type(weftDataType_t type) {
    if (is_datatype(type)) [[likely]]
        return ok();
    return fail(weftInvalidArgument, "datatype is {}; types are 0 to {}", int(type), weftNumTypes - 1);
}

inline Status check_count(size_t count, int parts) {
    if (count <= (size_t(1) << 48) / size_t(parts)) [[likely]]
        return ok();
    return fail(weftInvalidArgument, "count is {}: counts are elements{}, and no memory holds that many", count,
                parts > 1 ? ", of each rank's part" : "");
}

inline Status check_rank(const char* name, int rank, int ranks) {
    if (rank >= 0 && rank < ranks) [[likely]]
        return ok();
    return fail(weftInvalidArgument, "{} is {}; it is a rank, 0 to {}", name, rank, ranks - 1);
}

}  // namespace weft
