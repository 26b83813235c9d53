// error.hpp: the ids of errors. Each kind of error is a row of error.def: an id that never changes, its result code, and
// what a user can do. Three examples of a failing function:
//
//     return fail(error::argument_rank, "root is {}; it is a rank, 0 to {}", root, ranks - 1);
//     return fail(error::rank_died, "{} died", name).about({.rank = other, .peer = rank_, .sequence = sequence});
//     if (!read) return fail(read.status(), "{}: {}", file, read.status().sentence());  // another sentence, the same id
//
// The id decides the code. A sentence never contains its id: Status::text() puts it at the end, in brackets, for
// weftGetLastError and for log lines. Facts (rank, peer, call) are given where they are known.
// To convert a room: replace the code of each fail() by an id, `Status(x.status().code(), x.status().sentence())` by
// `x.status().copy()`, take the room off tools/error_sentences.py, run that script, and let tests assert ids (tests/error.hpp).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "src/base/collective.hpp"
#include "weft/types.h"

namespace weft::internal {

enum class ErrorId : uint16_t {
    none,
#define WEFT_ERROR(name, id, code, meaning, causes, remedy) name,
#include "src/base/error.def"
#undef WEFT_ERROR
};
namespace error {
using enum ErrorId;
}

struct ErrorRow {
    const char* id;
    weftResult_t code;
    const char *meaning, *causes, *remedy;
};
// Of ErrorId::none: an empty id, and weftSuccess.
const ErrorRow& row_of(ErrorId error);
// In the order of error.def.
std::span<const ErrorRow> error_rows();
std::optional<ErrorId> error_named(std::string_view id);
// Ids that a misspelt or shortened one may mean, the nearest first; never empty.
std::vector<std::string> ids_near(std::string_view id);
// Of sites that have no id yet; goes with them.
ErrorId other_error(weftResult_t code);

// The longest id has fewer characters than this: what a record in shared memory has room for.
inline constexpr size_t error_id_bytes = 32;

// The facts of a failure beside its id. A value: it travels between the ranks as it is.
struct FailureFacts {
    int32_t rank = -1;  // that failed, or made the call that does not fit; -1: unknown
    int32_t peer = -1;  // the other rank concerned, as the one that waited; -1: none
    Collective operation = Collective::none;
    uint8_t unused[7] = {};  // no padding, which would travel as it is
    uint64_t sequence = 0;   // of the operation on its communicator, from 1 on; 0: none
    bool operator==(const FailureFacts&) const = default;
};
static_assert(std::has_unique_object_representations_v<FailureFacts>);

}  // namespace weft::internal
