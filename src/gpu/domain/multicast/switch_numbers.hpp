// switch_numbers.hpp: the numbers of buffers that ranks put behind the switch (switched_buffers.hpp), in two series. A rank
// publishes a state for each: the number and the last step that it has ended. Kernels compare tokens.
#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "src/gpu/domain/multicast/switched_piece.hpp"

namespace weft::internal::cuda {

// The steps of a state, in their order. Behind `step_offered` they are those of SwitchStep.
enum StateStep : uint64_t {
    step_offered = 1,
    step_mapped = step_offered + uint64_t(SwitchStep::map) + 1,
    step_over = 0xff
};
inline constexpr int step_bits = 8;
constexpr uint64_t state_of(uint64_t number, uint64_t step) { return number << step_bits | step; }
constexpr uint64_t number_of(uint64_t state) { return state >> step_bits; }
constexpr uint64_t step_of(uint64_t state) { return state & step_over; }

// A number's highest bit is its series: of buffers that the user registers, or of buffers of captured calls.
inline constexpr int series_bit = 64 - step_bits - 1;
constexpr bool is_captured(uint64_t number) { return number >> series_bit != 0; }
// Of a call's send buffer; the receive buffer has the next one.
inline constexpr uint64_t captured_calls_max = uint64_t(1) << 20;  // of a capture
constexpr uint64_t captured_number(uint64_t capture, uint64_t call) {
    return uint64_t(1) << series_bit | (capture * captured_calls_max + call) * 2;
}
inline std::string name_of(uint64_t number) {
    const uint64_t in_series = number & ((uint64_t(1) << series_bit) - 1);
    return fmt::format("{} buffer {}", is_captured(number) ? "captured" : "registered", in_series);
}

// Above the offset a token has a bit that windows do not have, and a hash of the number.
constexpr uint64_t token_of(uint64_t number) {
    constexpr uint64_t token_of_buffer = uint64_t(1) << 63;
    return token_of_buffer | number * 0x9e3779b97f4a7c15u >> (1 + switched_offset_bits) << switched_offset_bits;
}

}  // namespace weft::internal::cuda
