// packet_line.hpp: loads and stores of packet lines, which need no fence. Each half of a line proves its arrival by itself,
// in one of two forms.
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
WEFT_DEVICE PacketLine packet_line(uint64_t data, uint32_t epoch) {
    return {uint32_t(data), epoch, uint32_t(data >> 32), epoch};
}
WEFT_DEVICE uint64_t data_of(const PacketLine& line) { return uint64_t(line.data1) << 32 | line.data0; }

// The forms, as a kernel of packets uses them.
// A half carries 4 bytes of data and the epoch. So a line is never cleared.
struct EpochLines {
    static constexpr int unit_bytes = 8;  // data of a line
    static constexpr bool are_cleared = false, overlap = false;
    static constexpr uint32_t buffers = 2;

    static WEFT_DEVICE PacketLine line_of(const Pack<8>& data, uint32_t epoch) {
        return {data.words[0], epoch, data.words[1], epoch};
    }
    static WEFT_DEVICE bool has_arrived(const PacketLine& line, uint32_t epoch) {
        return line.epoch0 == epoch && line.epoch1 == epoch;
    }
    static WEFT_DEVICE Pack<8> data_of(const PacketLine& line) { return {{line.data0, line.data1}}; }
    // Of two-shot: the units of a share in one round. The upper half of a sender's memory holds results.
    static WEFT_DEVICE int share_most(int ranks) { return lines_per_sender(ranks) / 2; }
    static WEFT_DEVICE uint32_t index(int ranks, uint32_t epoch, int block, bool result, int sender, int line) {
        return packet_index(ranks, epoch & 1, block, sender, line + (result ? share_most(ranks) : 0));
    }
    // The distance between the lines of consecutive senders.
    static WEFT_DEVICE int sender_stride(int) { return packet_group; }
};
// A line is data only, of floating-point numbers. A half has arrived when its upper word is not 0. That word is the
// complement of the data's. Only one NaN has the complement 0, and another one is sent for it. The reader clears the line.
// Source: the Lamport kernels of TensorRT-LLM and FlashInfer, which mark by -0.0 and so change results.
struct FullLines {
    static constexpr int unit_bytes = 16;
    static constexpr bool are_cleared = true, overlap = true;  // overlap: rounds of two-shot do
    static constexpr uint32_t buffers = full_line_buffers;

    static WEFT_DEVICE PacketLine line_of(const Pack<16>& data, uint32_t) {
        return {data.words[0], marked(data.words[1]), data.words[2], marked(data.words[3])};
    }
    static WEFT_DEVICE bool has_arrived(const PacketLine& line, uint32_t) {
        return line.epoch0 != 0 && line.epoch1 != 0;
    }
    static WEFT_DEVICE Pack<16> data_of(const PacketLine& line) {
        return {{line.data0, ~line.epoch0, line.data1, ~line.epoch1}};
    }
    static WEFT_DEVICE int share_most(int ranks) { return full_lines_per_sender(ranks); }
    static WEFT_DEVICE uint32_t index(int ranks, uint32_t epoch, int block, bool result, int sender, int line) {
        return full_line_index(ranks, epoch % full_line_buffers, block, result, sender, line);
    }
    static WEFT_DEVICE int sender_stride(int ranks) { return full_lines_per_sender(ranks); }

  private:
    // 0x7fffffff is NaN in elements of every size, as 0xffffffff is.
    static WEFT_DEVICE uint32_t marked(uint32_t word) { return word == ~0u ? ~0x7fffffffu : ~word; }
};

}  // namespace weft::internal::cuda
