// packets.hpp: collectives by packets. A line of 16 bytes carries 8 bytes of data and the epoch twice, stored straight
// into the peer's memory. A reader that sees the epoch has the data, so no barrier is needed. It sends twice the bytes,
// so it is for small messages.
// Two memories alternate: a sender in epoch e + 2 has met all peers in e + 1, and they had read epoch e by then.
// Source: NCCL's LL protocol; Shah et al., "MSCCL++: Rethinking GPU Communication Abstractions for AI Inference", 2025.
#pragma once
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/gpu/kernels/packet_line.hpp"
#include "src/gpu/kernels/packet_unit.hpp"

namespace weft::internal::cuda {

// The packets of one block of one rank, for both bodies.
template <weftDataType_t type, bool adds>
class PacketExchange {
  public:
    WEFT_DEVICE PacketExchange(const Team& team, const KernelArguments& arguments)
        : team_(team),
          a_(arguments),
          // in flight together with KernelBarrier::failure()
          barrier_(team, arguments, load_relaxed(&arguments.own->epoch[team.block])),
          reducer_(arguments),
          send_(arguments.send),
          receive_(arguments.receive),
          bytes_(arguments.bytes),
          blocks_(team.blocks) {}

    // Each source sends each destination its data; each destination combines the data or puts each source's data in its
    // place. A thread sends its lines of a round before it writes any of them, so the two buffers may be equal.
    WEFT_DEVICE void one_shot() {
        const uint32_t failure = barrier_.failure();
        if (a_.batched_count > 0) blocks_ = blocks_of(bytes_);
        Round round = rounds_of(lines_per_sender(a_.ranks));
        Lines lines = lines_of(round, 0);
        if (is_one_of(a_.source_rank, a_.rank)) prefetch_input(lines, a_.send_stride == 0 ? 1 : a_.ranks);
        if (!barrier_.begin(failure)) return;
        for (int next = 0;; ++next) {
            if (team_.block < blocks_ && !one_shot_rounds(round, lines)) return;
            if (next >= a_.batched_count) break;
            const MessageItem& item = a_.batched[next];
            send_ = item.other;
            receive_ = item.data;
            bytes_ = item.bytes;
            blocks_ = blocks_of(bytes_);
            round = rounds_of(lines_per_sender(a_.ranks));
            lines = lines_of(round, 0);
            barrier_.begin_operation(item.mark);
        }
        barrier_.leave();
    }

    // Each rank reduces its share of the others' data and sends the result to all. Ranks own the lines of a round in
    // turn. The lower half of a sender's memory holds contributions, the upper half results.
    WEFT_DEVICE void two_shot() {
        const uint32_t failure = barrier_.failure();
        const int half = lines_per_sender(a_.ranks) / 2;
        const Round round = rounds_of(half * a_.ranks);
        const int share = (round.lines + a_.ranks - 1) / a_.ranks;  // lines of each rank
        Lines lines = lines_of(round, 0);
        prefetch_input(lines, 1);
        if (!barrier_.begin(failure)) return;
        for (uint32_t number = 0; number < round.rounds; ++number) {
            barrier_.announce();
            barrier_.at_tile(number);
            if (number != 0) lines = lines_of(round, number);
            const bool succeeds = for_ranks(true, [&](auto fixed) { return two_shot_round<fixed>(lines, share); });
            if (team_.any(!succeeds) || !barrier_.await(KernelWait::packet)) return;
        }
        barrier_.leave();
    }

  private:
    static constexpr int batch = 8;  // lines that are loaded together

    // The message in rounds of `lines` units per block; equal on all ranks.
    struct Round {
        uint32_t rounds;  // an epoch each, so fewer than 2^30
        int lines;
    };
    // The block's units of one round. The default: it has none.
    struct Lines {
        const std::byte* in = nullptr;  // the first unit
        std::byte* out = nullptr;
        int count = 0;                    // units
        int whole_in = 0, whole_out = 0;  // so many units have 8 bytes and an aligned address
    };

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
    // Of one thread. False: leave.
    template <int fixed>
    WEFT_DEVICE bool two_shot_round(const Lines& lines, int share) const {
        const int half = lines_per_sender(ranks<fixed>()) / 2;
        for (int line = team_.thread; line < share; line += team_.threads)
            send_each<fixed>(
                line, [&](int peer) { return peer * share + line < lines.count; },
                [&](int peer) { return own_unit(lines, peer * share + line); });
        for (int line = team_.thread; line < share && a_.rank * share + line < lines.count; line += team_.threads) {
            const int own = a_.rank * share + line;
            uint64_t result;
            if (!reduce_line<fixed>(line, own_unit(lines, own), result)) return false;
            send_to_all<fixed>(half + line, result, [](int) { return true; });
            put_unit(lines, own, result);
        }
        for (int line = team_.thread; line < share; line += team_.threads)
            if (!receive_each<fixed>(
                    half + line, [&](int peer) { return peer != a_.rank && peer * share + line < lines.count; },
                    [&](int peer, uint64_t result) { put_unit(lines, peer * share + line, result); }))
                return false;
        return true;
    }

    // As the host computes them for a kernel of its own; the grid has the blocks of the longest call.
    WEFT_DEVICE int blocks_of(uint64_t bytes) const {
        const uint64_t wanted = (bytes + packet_bytes_a_block - 1) / packet_bytes_a_block;
        return wanted < 1 ? 1 : wanted < uint64_t(team_.blocks) ? int(wanted) : team_.blocks;
    }
    // `lines`: of the first round. False: leave.
    WEFT_DEVICE bool one_shot_rounds(const Round& round, Lines lines) {
        const bool all_reduces = a_.reduces && a_.send_stride == 0 && a_.source_rank < 0 && a_.destination_rank < 0;
        for (uint32_t number = 0; number < round.rounds; ++number) {
            barrier_.announce();
            barrier_.at_tile(number);
            if (number != 0) lines = lines_of(round, number);
            const bool succeeds =
                for_ranks(all_reduces, [&](auto fixed) { return one_shot_round<fixed, fixed != 0>(lines); });
            if (team_.any(!succeeds) || !barrier_.await(KernelWait::packet)) return false;
        }
        return true;
    }
    // Of one thread. all_reduces: known to be an all-reduce. False: leave.
    template <int fixed, bool all_reduces>
    WEFT_DEVICE bool one_shot_round(const Lines& lines) const {
        if (all_reduces || is_one_of(a_.source_rank, a_.rank))
            for (int line = team_.thread; line < lines.count; line += team_.threads)
                give<fixed, all_reduces>(lines, line);
        if (all_reduces || is_one_of(a_.destination_rank, a_.rank))
            for (int line = team_.thread; line < lines.count; line += team_.threads)
                if (!take<fixed, all_reduces>(lines, line)) return false;
        return true;
    }

    template <int fixed, bool all_reduces>
    WEFT_DEVICE void give(const Lines& lines, int line) const {
        if (all_reduces || a_.send_stride == 0) {
            const int only = all_reduces ? -1 : a_.destination_rank;
            send_to_all<fixed>(line, own_unit(lines, line), [&](int peer) { return is_one_of(only, peer); });
            return;
        }
        send_each<fixed>(
            line, [&](int peer) { return is_one_of(a_.destination_rank, peer); },
            [&](int peer) { return own_unit(lines, line, uint64_t(peer) * a_.send_stride); });
    }
    template <int fixed, bool all_reduces>
    WEFT_DEVICE bool take(const Lines& lines, int line) const {
        const uint64_t mine = all_reduces ? 0 : uint64_t(a_.rank) * a_.send_stride;
        if (all_reduces || a_.reduces) {
            uint64_t result;
            if (!reduce_line<fixed>(line, own_unit(lines, line, mine), result)) return false;
            put_unit(lines, line, result);
            return true;
        }
        const auto put = [&](int source, uint64_t value) {
            put_unit(lines, line, value, uint64_t(source) * a_.receive_stride);
        };
        if (is_one_of(a_.source_rank, a_.rank)) put(a_.rank, own_unit(lines, line, mine));
        return receive_each<fixed>(
            line, [&](int source) { return source != a_.rank && is_one_of(a_.source_rank, source); }, put);
    }

    // most_lines: a multiple of 16.
    WEFT_DEVICE Round rounds_of(int most_lines) const {
        const uint64_t units = (bytes_ + unit_bytes - 1) / unit_bytes, blocks = uint64_t(blocks_);
        // As few as give every block some; sixteen lines are a multiple of a cache line.
        const uint64_t least = (units + blocks - 1) / blocks;
        uint32_t lines = least < uint64_t(most_lines) ? (uint32_t(least) + 15) / 16 * 16 : uint32_t(most_lines);
        if (lines == 0) lines = 16;
        const uint64_t a_round = lines * blocks;
        return {units <= a_round ? 1 : uint32_t((units + a_round - 1) / a_round), int(lines)};
    }
    WEFT_DEVICE Lines lines_of(const Round& round, uint32_t number) const {
        const uint64_t first = (uint64_t(number) * uint32_t(blocks_) + uint32_t(team_.block)) * uint32_t(round.lines);
        if (first * unit_bytes >= bytes_) return {};
        const uint64_t left = bytes_ - first * unit_bytes;
        const auto least = [&](uint64_t units) { return units < uint64_t(round.lines) ? int(units) : round.lines; };
        const int whole = least(left / unit_bytes);
        const auto aligned = [](const std::byte* buffer, uint64_t stride) {
            return misalignment(buffer, unit_bytes) == 0 && stride % unit_bytes == 0;
        };
        // A rank may have one of the buffers only, and null takes no offset.
        const auto address = [&](const std::byte* buffer) {
            return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(buffer) + first * unit_bytes);
        };
        return {address(send_), address(receive_), least((left + unit_bytes - 1) / unit_bytes),
                aligned(send_, a_.send_stride) ? whole : 0, aligned(receive_, a_.receive_stride) ? whole : 0};
    }
    // The block's input of the first round arrives while begin() waits. parts: of the input, a stride apart.
    WEFT_DEVICE void prefetch_input(const Lines& lines, int parts) const {
        constexpr uint32_t cache_line = 128;
        WEFT_NO_UNROLL
        for (uint32_t at = uint32_t(team_.thread) * cache_line; at < uint32_t(lines.count) * unit_bytes;
             at += uint32_t(team_.threads) * cache_line) {
            const std::byte* address = lines.in + at;
            WEFT_NO_UNROLL
            for (int part = 0; part < parts; ++part, address += a_.send_stride) prefetch(address);
        }
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
    // The bytes of the message from a unit on.
    WEFT_DEVICE size_t bytes_from(const Lines& lines, int line) const {
        return bytes_ - size_t(lines.in - send_) - size_t(uint32_t(line)) * unit_bytes;
    }
    // A unit of the data that lies `stride` bytes further.
    WEFT_DEVICE uint64_t own_unit(const Lines& lines, int line, uint64_t stride = 0) const {
        const std::byte* const address = lines.in + uint64_t(uint32_t(line)) * unit_bytes + stride;
        uint64_t unit;
        if (line < lines.whole_in) {
            const Pack<8> pack = load_pack<8>(address);
            unit = uint64_t(pack.words[1]) << 32 | pack.words[0];
        } else {
            unit = load_partial_unit(address, bytes_from(lines, line));
        }
        return reducer_.scaled() ? scaled(reducer_, unit) : unit;
    }
    static WEFT_DEVICE_COLD uint64_t scaled(Reducer<type, adds> reducer, uint64_t unit) {
        auto wide = Unit<type, adds>::widen(unit);
        for (auto& word : wide.at) word = reducer.scale(word);
        return wide.rounded();
    }
    WEFT_DEVICE void put_unit(const Lines& lines, int line, uint64_t unit, uint64_t stride = 0) const {
        std::byte* const address = lines.out + uint64_t(uint32_t(line)) * unit_bytes + stride;
        if (line < lines.whole_out)
            store_pack<8>(address, {{uint32_t(unit), uint32_t(unit >> 32)}});
        else
            store_partial_unit(address, bytes_from(lines, line), unit);
    }

    // The place of a sender's line in the packet memory of this epoch, equal for all owners of such memory.
    template <int fixed>
    WEFT_DEVICE uint32_t place_of(int sender, int line) const {
        return packet_index(ranks<fixed>(), barrier_.epoch() & 1, team_.block, sender, line);
    }
    WEFT_DEVICE void send(int peer, uint32_t place, uint64_t unit) const {
        store_line(a_.packets[peer] + place, packet_line(unit, barrier_.epoch()));
    }
    // To each peer that is wanted.
    template <int fixed, class Wanted>
    WEFT_DEVICE void send_to_all(int line, uint64_t unit, Wanted&& wanted) const {
        const uint32_t place = place_of<fixed>(a_.rank, line);
        const int all = ranks<fixed>();
        int peer = a_.rank;
        WEFT_UNROLL
        for (int left = all - 1; left > 0; --left) {
            peer = peer + 1 < all ? peer + 1 : 0;
            if (wanted(peer)) send(peer, place, unit);
        }
    }
    // Sends a unit to each peer that wants one. All loads of a batch are issued before the first store.
    template <int fixed, class Wanted, class Load>
    WEFT_DEVICE void send_each(int line, Wanted&& wanted, Load&& load) const {
        WEFT_NO_UNROLL
        for (int near = 1; near < ranks<fixed>(); near += batch) {
            uint64_t units[batch];
            uint32_t wanted_here = 0;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (near + k < ranks<fixed>() && wanted(turned<fixed>(near + k))) {
                    wanted_here |= 1u << k;
                    units[k] = load(turned<fixed>(near + k));
                }
            const uint32_t place = place_of<fixed>(a_.rank, line);
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (is_in<fixed>(near + k) && (wanted_here >> k & 1)) send(turned<fixed>(near + k), place, units[k]);
        }
    }

    static WEFT_DEVICE int first_of(uint32_t bits) {
        int bit = 0;
        while ((bits >> bit & 1) == 0) ++bit;
        return bit;
    }
    // The other ranks among first to first + batch - 1, by bit.
    template <int fixed>
    WEFT_DEVICE uint32_t peers_of_batch(int first) const {
        const int count = ranks<fixed>() - first;
        const uint32_t own = uint32_t(a_.rank - first), all = count < batch ? (1u << count) - 1 : (1u << batch) - 1;
        return own < uint32_t(batch) ? all & ~(1u << own) : all;
    }
    // False: known not to be a rank.
    template <int fixed>
    static WEFT_DEVICE bool is_in(int rank) {
        return fixed == 0 || rank < fixed;
    }
    // Waits for a line from each rank of a batch; bit k of `missing`: from rank first + k. All loads are issued before
    // the first is used.
    template <int fixed>
    WEFT_DEVICE bool receive_batch(int first, uint32_t missing, int line, PacketLine (&seen)[batch]) const {
        const PacketLine* const lines = a_.packets[a_.rank] + place_of<fixed>(first, line);
        return barrier_.spin(
            KernelWait::packet, [&] { return first + first_of(missing); },
            [&] {
                WEFT_UNROLL
                for (int k = 0; k < batch; ++k)
                    if (is_in<fixed>(first + k) && (missing >> k & 1)) seen[k] = load_line(lines + k * packet_group);
                WEFT_UNROLL
                for (int k = 0; k < batch; ++k)
                    if (is_in<fixed>(first + k) && is_of(seen[k], barrier_.epoch())) missing &= ~(1u << k);
                return missing == 0;
            });
    }
    // Calls put(sender, unit) for each wanted rank's unit.
    template <int fixed, class Wanted, class Put>
    WEFT_DEVICE bool receive_each(int line, Wanted&& wanted, Put&& put) const {
        WEFT_NO_UNROLL
        for (int first = 0; first < ranks<fixed>(); first += batch) {
            PacketLine seen[batch] = {};
            uint32_t wanted_here = 0;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (first + k < ranks<fixed>() && wanted(first + k)) wanted_here |= 1u << k;
            if (!receive_batch<fixed>(first, wanted_here, line, seen)) return false;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (is_in<fixed>(first + k) && (wanted_here >> k & 1)) put(first + k, data_of(seen[k]));
        }
        return true;
    }

    // Combines the contributions of all ranks to a line in rank order.
    template <int fixed>
    WEFT_DEVICE bool reduce_line(int line, uint64_t own, uint64_t& result) const {
        Unit<type, adds> value = {};
        WEFT_NO_UNROLL
        for (int first = 0; first < ranks<fixed>(); first += batch) {
            PacketLine seen[batch] = {};
            if (!receive_batch<fixed>(first, peers_of_batch<fixed>(first), line, seen)) return false;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k) {
                if (first + k >= ranks<fixed>()) continue;
                const uint64_t unit = first + k == a_.rank ? own : data_of(seen[k]);
                auto wide = Unit<type, adds>::widen(unit);
                for (auto& word : wide.at) word = reducer_.contribution(word);
                value = first + k == 0 ? wide : combine(value, wide);
            }
        }
        value.finish(reducer_);
        result = value.rounded();
        return true;
    }

    WEFT_DEVICE Unit<type, adds> combine(const Unit<type, adds>& left, const Unit<type, adds>& right) const {
        if constexpr (adds)
            return Unit<type, adds>::combine(reducer_, left, right);
        else
            return Unit<type, adds>::combine_cold(reducer_, left, right);
    }

    const Team team_;
    const KernelArguments& a_;
    KernelBarrier barrier_;
    const Reducer<type, adds> reducer_;
    // The current call's.
    const std::byte* send_;
    std::byte* receive_;
    uint64_t bytes_;
    int blocks_;
};

template <weftDataType_t type, bool adds>
WEFT_DEVICE void packet_one_shot(const Team& team, const KernelArguments& arguments) {
    PacketExchange<type, adds>(team, arguments).one_shot();
}
template <weftDataType_t type, bool adds>
WEFT_DEVICE void packet_two_shot(const Team& team, const KernelArguments& arguments) {
    PacketExchange<type, adds>(team, arguments).two_shot();
}

}  // namespace weft::internal::cuda
