// one_sided_call.hpp: the arguments of a one-sided call, and the checks that need the peer's part of the window.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/rma/rma_messages.hpp"

namespace weft::internal {

struct SignalWait {
    int peer;
    int signal;  // Signals::number_of()
    uint64_t count;
};

struct OneSidedCall {
    enum class RmaOp : uint8_t { put, get, signal, wait, flush };
    RmaOp kind;
    int peer = 0;
    uint32_t window = 0;
    uint64_t offset = 0, bytes = 0;
    std::byte* data = nullptr;
    int signal = RmaMessages::no_signal;
    std::span<const SignalWait> waits = {};
    bool is_put() const { return kind == RmaOp::put; }
};
// Fails if a put or get reaches beyond the peer's part of `part_bytes` bytes.
Status check_inside(const OneSidedCall& call, uint64_t part_bytes);
// Fails if the local buffer and the accessed range, mapped at `there`, overlap without being equal.
Status check_overlap(const OneSidedCall& call, const std::byte* there);
// Merges waits for the same signal into one, with the sum of their counts.
void merge_waits(std::span<const SignalWait> waits, std::vector<SignalWait>& into);

}  // namespace weft::internal
