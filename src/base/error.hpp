// error.hpp: the ids of errors. Each kind of error is a row of error.def: a stable id, its result code, and the remedy
// for the user. Three examples of a failing function:
//
//   return fail(error::argument_rank, "root is {}; it is a rank, 0 to {}", root, ranks - 1);
//
//   return fail(error::rank_died, "{} died", name).about({.rank = other, .peer = rank_, .sequence = sequence});
//
//   if (!read) return fail(read.status(), "{}: {}", file, read.status().sentence());  // another sentence, the same id
//
// The id determines the code. A sentence never contains its id: Status::text() appends it in brackets, for
// weftGetLastError and for log lines. A failing function passes the facts (rank, peer, call) that it knows.
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
// For ErrorId::none: an empty id, and weftSuccess.
const ErrorRow& row_of(ErrorId error);
// In the order of error.def.
std::span<const ErrorRow> error_rows();
std::optional<ErrorId> error_named(std::string_view id);
// Ids that a misspelt or shortened one may mean, the nearest first; never empty.
std::vector<std::string> ids_near(std::string_view id);

// Every id is shorter than this: the room in a record in shared memory.
inline constexpr size_t error_id_bytes = 32;

// The facts of a failure beside its id. A value: ranks pass its bytes unchanged.
struct FailureFacts {
    int32_t rank = -1;  // the rank that failed, or made the mismatched call; -1: unknown
    int32_t peer = -1;  // the other rank concerned, such as the one that waited; -1: none
    Collective operation = Collective::none;
    uint8_t unused[7] = {};  // instead of padding, which would be sent uninitialized
    uint64_t sequence = 0;   // of the operation on its communicator, from 1 on; 0: none
    bool operator==(const FailureFacts&) const = default;
};
static_assert(std::has_unique_object_representations_v<FailureFacts>);

}  // namespace weft::internal
