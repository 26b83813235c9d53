// operation.hpp: a call as a value: the arguments that must match on all ranks. Buffers are bound later, per run.
#pragma once
#include <cstdint>
#include <string>

#include "src/base/collective.hpp"
#include "src/base/datatype.hpp"
#include "src/base/error.hpp"

namespace weft::internal {

// Memory space of a call's buffers: all ranks must agree on that, too.
enum class Space : uint8_t { host, device };

// A call is the user's, or an all-gather that Weft makes itself: for the split of a communicator, or for the begin or
// the end of a window.
enum class Purpose : uint8_t { user, split, window, windows_end, copies };

// Fields are wide enough for future collectives; 32 bytes fit in a cache line of shared memory beside the sequence.
struct Operation {
    Collective collective = Collective::none;
    uint8_t type = 0;  // weftDataType_t
    uint8_t op = 0;    // weftRedOp_t, or one of the constants below for all created reductions of a kind
    Space space = Space::host;
    int32_t root : 24 = 0;  // a rank, or 0 where there is none
    Purpose purpose : 8 = Purpose::user;
    uint64_t count = 0;   // elements of one part
    uint64_t choice = 0;  // hash of the selector's choice: ranks that agree on the call must agree on the algorithm
    // For coalesced calls of a group: their number, and in the bits below a hash of their counts; otherwise 0.
    uint64_t coalesced = 0;
    static constexpr int coalesced_shift = 40;
    uint64_t coalesced_count() const { return coalesced >> coalesced_shift; }

    bool is_wefts_own() const { return purpose != Purpose::user; }

    // Created reductions: the scalar or function is each rank's own.
    static constexpr uint8_t op_of_scaled_sum = weftNumOps, op_of_function = weftNumOps + 1,
                             op_of_ordered_function = weftNumOps + 2;
    bool scales() const { return op == op_of_scaled_sum; }
    bool calls_function() const { return op == op_of_function || op == op_of_ordered_function; }
    // The contributions are combined in rank order with any algorithm.
    bool keeps_order() const { return op == op_of_ordered_function; }

    bool operator==(const Operation&) const = default;
    size_t bytes() const { return count * datatype_bytes[type]; }  // of one part
    size_t whole_bytes(int ranks) const { return size_t(parts_of(collective, ranks)) * bytes(); }
    // "all_reduce of 1024 float, sum": the form in errors and logs.
    std::string text() const;
    const char* name_of_reduction() const;
};

// The first difference of two calls, as the id of an error; mismatch_algorithm if only their choices differ.
ErrorId mismatch_between(const Operation& one, const Operation& other);

// The value in flag words and headers: equal operations have equal fingerprints, different ones almost surely not.
inline uint32_t fingerprint(const Operation& operation) {
    static_assert(uint8_t(Space::device) < 1 << 4 && uint8_t(Purpose::copies) < 1 << 4);  // four bits each
    uint64_t head = uint64_t(uint8_t(operation.collective)) | uint64_t(operation.type) << 8 |
                    uint64_t(operation.op) << 16 | uint64_t(uint8_t(operation.space)) << 24 |
                    uint64_t(uint8_t(operation.purpose)) << 28 | uint64_t(uint32_t(operation.root)) << 32;
    uint64_t mix = (head ^ 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    mix = (mix ^ (mix >> 29) ^ operation.count) * 0x94d049bb133111ebu;
    mix = (mix ^ (mix >> 32) ^ operation.choice ^ operation.coalesced) * 0xd6e8feb86659fd93u;
    return uint32_t(mix >> 32);
}

}  // namespace weft::internal
