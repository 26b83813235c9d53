// datatype.hpp: names and sizes of data types and reductions, from datatype.def and reduction.def.
#pragma once
#include <cstddef>

#include "weft/types.h"

namespace weft::internal {

inline constexpr size_t datatype_bytes[] = {
#define WEFT_DATATYPE(enumerator, name, bytes) bytes,
#include "src/base/datatype.def"
#undef WEFT_DATATYPE
};
inline constexpr const char* datatype_names[] = {
#define WEFT_DATATYPE(enumerator, name, bytes) #name,
#include "src/base/datatype.def"
#undef WEFT_DATATYPE
};
inline constexpr const char* reduction_names[] = {
#define WEFT_REDUCTION(enumerator, name) #name,
#include "src/base/reduction.def"
#undef WEFT_REDUCTION
};
static_assert(sizeof datatype_bytes / sizeof *datatype_bytes == weftNumTypes);
static_assert(sizeof reduction_names / sizeof *reduction_names == weftNumOps);

inline bool is_datatype(int type) { return type >= 0 && type < weftNumTypes; }
inline size_t size_of(weftDataType_t type) { return datatype_bytes[type]; }
inline const char* name_of(weftDataType_t type) { return is_datatype(type) ? datatype_names[type] : "unknown type"; }
constexpr bool is_integer(weftDataType_t type) { return type >= weftInt8 && type <= weftUint64; }
constexpr bool is_bitwise(weftRedOp_t op) { return op >= weftBand && op <= weftBxor; }
// Whether the reduction is defined for the type.
constexpr bool serves(weftRedOp_t op, weftDataType_t type) { return !is_bitwise(op) || is_integer(type); }
inline const char* name_of(weftRedOp_t op) {
    return op >= 0 && op < weftNumOps ? reduction_names[op] : "made reduction";
}

}  // namespace weft::internal
