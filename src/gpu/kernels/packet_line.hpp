// packet_line.hpp: loads and stores of packet lines. A line that carries the expected epoch twice has arrived whole, so
// it needs no fence.
#pragma once
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"

namespace weft::internal::cuda {

// Each half is one access of 8 bytes in PTX's memory model; four of 4 bytes would have no order.
#if defined(__CUDACC__)
WEFT_DEVICE PacketLine load_line(const PacketLine* line) {
    uint64_t half0, half1;
    asm volatile("ld.relaxed.sys.v2.b64 {%0, %1}, [%2];" : "=l"(half0), "=l"(half1) : "l"(line) : "memory");
    return {uint32_t(half0), uint32_t(half0 >> 32), uint32_t(half1), uint32_t(half1 >> 32)};
}
WEFT_DEVICE void store_line(PacketLine* line, const PacketLine& value) {
    asm volatile("st.relaxed.sys.v2.b64 [%0], {%1, %2};" ::"l"(line), "l"(uint64_t(value.epoch0) << 32 | value.data0),
                 "l"(uint64_t(value.epoch1) << 32 | value.data1)
                 : "memory");
}
#else
// Each half arrives whole, in either order.
inline PacketLine load_line(const PacketLine* line) {
    auto* halves = reinterpret_cast<const uint64_t*>(line);
    const uint64_t half0 = load_relaxed(halves), half1 = load_relaxed(halves + 1);
    return {uint32_t(half0), uint32_t(half0 >> 32), uint32_t(half1), uint32_t(half1 >> 32)};
}
inline void store_line(PacketLine* line, const PacketLine& value) {
    auto* halves = reinterpret_cast<uint64_t*>(line);
    store_relaxed(halves, uint64_t(value.epoch0) << 32 | value.data0);
    store_relaxed(halves + 1, uint64_t(value.epoch1) << 32 | value.data1);
}
#endif
WEFT_DEVICE bool is_of(const PacketLine& line, uint32_t epoch) { return line.epoch0 == epoch && line.epoch1 == epoch; }
WEFT_DEVICE uint64_t data_of(const PacketLine& line) { return uint64_t(line.data1) << 32 | line.data0; }
WEFT_DEVICE PacketLine packet_line(uint64_t data, uint32_t epoch) {
    return {uint32_t(data), epoch, uint32_t(data >> 32), epoch};
}

}  // namespace weft::internal::cuda
