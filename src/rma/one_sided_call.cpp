#include "src/rma/one_sided_call.hpp"

#include <algorithm>

namespace weft::internal {

Status check_inside(const OneSidedCall& call, uint64_t part_bytes) {
    if (call.offset <= part_bytes && call.bytes <= part_bytes - call.offset) return ok();
    return fail(error::window_range,
                "{} bytes at offset {} (bytes) are not all inside rank {}'s part of the window, which has {} bytes: "
                "nothing was {}",
                call.bytes, call.offset, call.peer, part_bytes,
                call.kind == OneSidedCall::RmaOp::put ? "written" : "read");
}

Status check_overlap(const OneSidedCall& call, const std::byte* there) {
    const auto first = reinterpret_cast<uintptr_t>(call.data), second = reinterpret_cast<uintptr_t>(there);
    const uintptr_t distance = first < second ? second - first : first - second;
    if (distance == 0 || distance >= call.bytes) return ok();
    const bool puts = call.kind == OneSidedCall::RmaOp::put;
    return fail(error::argument_overlap,
                "localbuff overlaps what is {0} of rank {1}'s part of the window: {2} bytes each, {3} apart; they must "
                "be equal or disjoint: nothing was {0}",
                puts ? "written" : "read", call.peer, call.bytes, distance);
}

void merge_waits(std::span<const SignalWait> waits, std::vector<SignalWait>& into) {
    into.clear();
    for (const SignalWait& wait : waits) {
        const auto same = std::find_if(into.begin(), into.end(), [&](const SignalWait& other) {
            return other.peer == wait.peer && other.signal == wait.signal;
        });
        same == into.end() ? into.push_back(wait) : void(same->count += wait.count);
    }
}

}  // namespace weft::internal
