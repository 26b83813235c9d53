// packet_pieces.hpp: the part of a message that a block of a packet kernel carries in each round, by units of one line.
#pragma once
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/packets/packet_unit.hpp"

namespace weft::internal::cuda {

// The message in rounds of `lines` units per block; equal on all ranks.
struct PacketRounds {
    uint32_t rounds;  // an epoch each, so fewer than 2^30
    int lines;
};
// A block's units of one round. The default: it has none.
struct PacketLines {
    uint64_t begin = 0;               // bytes of the message before the first unit
    int count = 0;                    // units
    int whole_in = 0, whole_out = 0;  // so many units have all bytes and an aligned address
};

template <weftDataType_t type, bool adds, int unit_bytes>
class PacketPieces {
  public:
    using Data = Pack<unit_bytes>;

    WEFT_DEVICE PacketPieces(const Team& team, const KernelArguments& arguments)
        : team_(team),
          a_(arguments),
          reducer_(arguments),
          send_(arguments.send),
          receive_(arguments.receive),
          bytes_(arguments.bytes),
          blocks_(team.blocks) {}

  protected:
    // Calls round(number of ranks). If `fixes`, 2, 4 and 8 ranks are constants; otherwise the number is 0: any. Rarely used
    // reductions take less code, and elements of one byte would take too many registers.
    template <class RoundOf>
    WEFT_DEVICE bool for_ranks(bool fixes, RoundOf&& round) const {
        if constexpr (adds && sizeof(ElementOf<type>) > 1) {
            if (fixes && a_.ranks == 8) return round(std::integral_constant<int, 8>());
            if (fixes && a_.ranks == 4) return round(std::integral_constant<int, 4>());
            if (fixes && a_.ranks == 2) return round(std::integral_constant<int, 2>());
        }
        return round(std::integral_constant<int, 0>());
    }
    // A constant, if `fixed` is not 0.
    template <int fixed>
    WEFT_DEVICE int ranks() const {
        return fixed != 0 ? fixed : a_.ranks;
    }
    template <int fixed>
    WEFT_DEVICE int turned(int distance) const {
        const int peer = a_.rank + distance;
        return peer < ranks<fixed>() ? peer : peer - ranks<fixed>();
    }

    // most_lines: a multiple of units_of_line.
    WEFT_DEVICE PacketRounds rounds_of(int most_lines) const {
        const uint64_t units = (bytes_ + unit_bytes - 1) / unit_bytes, blocks = uint64_t(blocks_);
        // As few as give every block some, in whole lines of the cache.
        const uint64_t least = (units + blocks - 1) / blocks;
        uint32_t lines = least < uint64_t(most_lines)
                             ? (uint32_t(least) + units_of_line - 1) / units_of_line * units_of_line
                             : uint32_t(most_lines);
        if (lines == 0) lines = units_of_line;
        const uint64_t a_round = lines * blocks;
        return {units <= a_round ? 1 : uint32_t((units + a_round - 1) / a_round), int(lines)};
    }
    WEFT_DEVICE PacketLines lines_of(const PacketRounds& round, uint32_t number) const {
        const uint64_t first = (uint64_t(number) * uint32_t(blocks_) + uint32_t(team_.block)) * uint32_t(round.lines);
        if (first * unit_bytes >= bytes_) return {};
        const uint64_t left = bytes_ - first * unit_bytes;
        const auto least = [&](uint64_t units) { return units < uint64_t(round.lines) ? int(units) : round.lines; };
        const int whole = least(left / unit_bytes);
        const auto aligned = [](const std::byte* buffer, uint64_t stride) {
            return misalignment(buffer, unit_bytes) == 0 && stride % unit_bytes == 0;
        };
        return {first * unit_bytes, least((left + unit_bytes - 1) / unit_bytes),
                aligned(send_, a_.send_stride) ? whole : 0, aligned(receive_, a_.receive_stride) ? whole : 0};
    }
    // The block's input of the first round arrives while begin() waits. parts: of the input, a stride apart.
    WEFT_DEVICE void prefetch_input(const PacketLines& lines, int parts) const {
        WEFT_NO_UNROLL
        for (uint32_t at = uint32_t(team_.thread) * cache_line; at < uint32_t(lines.count) * unit_bytes;
             at += uint32_t(team_.threads) * cache_line) {
            const std::byte* address = send_ + lines.begin + at;
            WEFT_NO_UNROLL
            for (int part = 0; part < parts; ++part, address += a_.send_stride) prefetch(address);
        }
    }

    // The same in the round after that of `lines`.
    WEFT_DEVICE void prefetch_next(const PacketRounds& round, PacketLines lines) const {
        lines.begin += uint64_t(uint32_t(round.lines)) * uint32_t(blocks_) * unit_bytes;
        if (lines.begin + uint64_t(uint32_t(lines.count)) * unit_bytes <= bytes_) prefetch_input(lines, 1);
    }

    // A unit of the data that lies `stride` bytes further.
    WEFT_DEVICE Data own_unit(const PacketLines& lines, int line, uint64_t stride = 0) const {
        const std::byte* const address = send_ + lines.begin + uint64_t(uint32_t(line)) * unit_bytes + stride;
        const Data unit = line < lines.whole_in ? load_pack<unit_bytes>(address)
                                                : load_partial_unit<unit_bytes>(address, bytes_from(lines, line));
        return reducer_.scaled() ? scaled_unit<type, adds>(reducer_, unit) : unit;
    }
    WEFT_DEVICE void put_unit(const PacketLines& lines, int line, const Data& unit, uint64_t stride = 0) const {
        std::byte* const address = receive_ + lines.begin + uint64_t(uint32_t(line)) * unit_bytes + stride;
        if (line < lines.whole_out)
            store_pack<unit_bytes>(address, unit);
        else
            store_partial_unit<unit_bytes>(address, bytes_from(lines, line), unit);
    }

    const Team team_;
    const KernelArguments& a_;
    const Reducer<type, adds> reducer_;
    // The current call's.
    const std::byte* send_;
    std::byte* receive_;
    uint64_t bytes_;
    int blocks_;

  private:
    static constexpr uint32_t cache_line = 128, units_of_line = cache_line / unit_bytes;

    // The bytes of the message from a unit on.
    WEFT_DEVICE size_t bytes_from(const PacketLines& lines, int line) const {
        return bytes_ - lines.begin - size_t(uint32_t(line)) * unit_bytes;
    }
};

}  // namespace weft::internal::cuda
