// packets.hpp: collectives by packets. A line of 16 bytes carries 8 bytes of data and the epoch twice, stored straight
// into the peer's memory. A reader that sees the epoch has the data, so no barrier is needed. It sends twice the bytes,
// so it is for small messages.
// Two memories alternate: a sender in epoch e + 2 has met all peers in e + 1, and they had read epoch e by then.
// Source: NCCL's LL protocol; Shah et al., "MSCCL++: Rethinking GPU Communication Abstractions for AI Inference", 2025.
#pragma once
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/gpu/kernels/packet_line.hpp"
#include "src/gpu/kernels/reduce.hpp"

namespace weft::internal::cuda {

inline constexpr size_t unit_bytes = 8;  // data of a line

// The first `bytes` bytes (at most 8) at any address, padded with zeros.
WEFT_DEVICE_COLD uint64_t load_partial_unit(const std::byte* address, size_t bytes) {
    if (bytes >= unit_bytes && misalignment(address, 4) == 0)
        return uint64_t(load_pack<4>(address + 4).words[0]) << 32 | load_pack<4>(address).words[0];
    uint64_t unit = 0;
    for (size_t i = 0; i < unit_bytes && i < bytes; ++i) unit |= uint64_t(address[i]) << 8 * i;
    return unit;
}
WEFT_DEVICE bool is_whole_unit(const std::byte* address, size_t bytes) {
    return bytes >= unit_bytes && misalignment(address, 8) == 0;
}
WEFT_DEVICE uint64_t load_unit(const std::byte* address, size_t bytes) {
    if (!is_whole_unit(address, bytes)) return load_partial_unit(address, bytes);
    const Pack<8> pack = load_pack<8>(address);
    return uint64_t(pack.words[1]) << 32 | pack.words[0];
}
WEFT_DEVICE_COLD void store_partial_unit(std::byte* address, size_t bytes, uint64_t unit) {
    if (bytes >= unit_bytes && misalignment(address, 4) == 0) {
        store_pack<4>(address, {{uint32_t(unit)}});
        store_pack<4>(address + 4, {{uint32_t(unit >> 32)}});
    } else {
        for (size_t i = 0; i < unit_bytes && i < bytes; ++i) address[i] = std::byte(unit >> 8 * i);
    }
}
WEFT_DEVICE void store_unit(std::byte* address, size_t bytes, uint64_t unit) {
    if (is_whole_unit(address, bytes))
        store_pack<8>(address, {{uint32_t(unit), uint32_t(unit >> 32)}});
    else
        store_partial_unit(address, bytes, unit);
}

// The elements of one line.
template <weftDataType_t type, bool adds>
struct Unit {
    static constexpr int words = int(unit_bytes / sizeof(WordOf<type>));
    WidenedWord<type> at[words];

    static WEFT_DEVICE Unit widen(uint64_t unit) {
        Unit wide;
        for (int w = 0; w < words; ++w)
            wide.at[w] = cuda::widen<type>(WordOf<type>(unit >> 8 * sizeof(WordOf<type>) * unsigned(w) % 64));
        return wide;
    }
    WEFT_DEVICE uint64_t rounded() const {
        uint64_t unit = 0;
        for (int w = 0; w < words; ++w)
            unit |= uint64_t(round<type>(at[w])) << 8 * sizeof(WordOf<type>) * unsigned(w) % 64;
        return unit;
    }
    static WEFT_DEVICE Unit combine(const Reducer<type, adds>& reducer, Unit left, const Unit& right) {
        for (int w = 0; w < words; ++w) left.at[w] = reducer.combine(left.at[w], right.at[w]);
        return left;
    }
    // Rarely used reductions take less code.
    static WEFT_DEVICE_COLD Unit combine_cold(Reducer<type, adds> reducer, Unit left, Unit right) {
        return combine(reducer, left, right);
    }
    WEFT_DEVICE void finish(const Reducer<type, adds>& reducer) {
        for (int w = 0; w < words; ++w) at[w] = reducer.finish(at[w]);
    }
};

// The packets of one block of one rank, for both bodies.
template <weftDataType_t type, bool adds>
class PacketExchange {
  public:
    WEFT_DEVICE PacketExchange(const Team& team, const KernelArguments& arguments)
        : team_(team),
          a_(arguments),
          reducer_(arguments),
          barrier_(team, arguments),
          send_(arguments.send),
          receive_(arguments.receive),
          bytes_(arguments.bytes),
          blocks_(team.blocks) {}

    // Each source sends each destination its data; each destination combines the data or puts each source's data in its
    // place. A thread sends its lines of a round before it writes any of them, so the two buffers may be equal.
    WEFT_DEVICE void one_shot() {
        if (!barrier_.begin()) return;
        for (int next = 0;; ++next) {
            if (a_.batched_count > 0) blocks_ = blocks_of(bytes_);
            if (team_.block < blocks_ && !one_shot_rounds()) return;
            if (next >= a_.batched_count) break;
            const MessageItem& item = a_.batched[next];
            send_ = item.other;
            receive_ = item.data;
            bytes_ = item.bytes;
            barrier_.begin_operation(item.mark);
        }
        barrier_.leave();
    }

    // Each rank reduces its share of the others' data and sends the result to all. Ranks own the lines of a round in
    // turn. The lower half of a sender's memory holds contributions, the upper half results.
    WEFT_DEVICE void two_shot() {
        const int half = lines_per_sender(a_.ranks) / 2;
        if (!barrier_.begin()) return;
        const Round round = rounds_of(half * a_.ranks);
        const int share = (round.lines + a_.ranks - 1) / a_.ranks;  // lines of each rank
        for (uint64_t number = 0; number < round.rounds; ++number) {
            barrier_.announce();
            barrier_.at_tile(number);
            const uint64_t first = first_unit(round, number);
            const int lines = lines_here(round, first);
            for (int line = team_.thread; line < share; line += team_.threads)
                send_each(
                    line, [&](int peer) { return peer * share + line < lines; },
                    [&](int peer) { return own_unit(first + uint64_t(peer * share + line)); });
            bool failed = false;
            for (int line = team_.thread; line < share && a_.rank * share + line < lines && !failed;
                 line += team_.threads) {
                const uint64_t unit = first + uint64_t(a_.rank * share + line);
                uint64_t result;
                failed = !reduce_line(line, own_unit(unit), result);
                if (failed) break;
                send_to_all(half + line, result);
                put_unit(unit, result);
            }
            for (int line = team_.thread; line < share && !failed; line += team_.threads)
                failed = !receive_each(
                    half + line, [&](int peer) { return peer != a_.rank && peer * share + line < lines; },
                    [&](int peer, uint64_t result) { put_unit(first + uint64_t(peer * share + line), result); });
            if (team_.any(failed) || !barrier_.await(KernelWait::packet)) return;
        }
        barrier_.leave();
    }

  private:
    static constexpr int batch = 8;  // lines that are loaded together

    // As the host computes them for a kernel of its own; the grid has the blocks of the longest call.
    WEFT_DEVICE int blocks_of(uint64_t bytes) const {
        const uint64_t wanted = (bytes + packet_bytes_a_block - 1) / packet_bytes_a_block;
        return wanted < 1 ? 1 : wanted < uint64_t(team_.blocks) ? int(wanted) : team_.blocks;
    }
    // False: leave.
    WEFT_DEVICE bool one_shot_rounds() {
        const bool gives = is_one_of(a_.source_rank, a_.rank), takes = is_one_of(a_.destination_rank, a_.rank);
        const Round round = rounds_of(lines_per_sender(a_.ranks));
        for (uint64_t number = 0; number < round.rounds; ++number) {
            barrier_.announce();
            barrier_.at_tile(number);
            const uint64_t first = first_unit(round, number);
            const int lines = lines_here(round, first);
            for (int line = team_.thread; line < lines && gives; line += team_.threads)
                give(line, first + uint64_t(line));
            bool failed = false;
            for (int line = team_.thread; line < lines && takes && !failed; line += team_.threads)
                failed = !take(line, first + uint64_t(line));
            if (team_.any(failed) || !barrier_.await(KernelWait::packet)) return false;
        }
        return true;
    }

    WEFT_DEVICE void give(int line, uint64_t unit) const {
        if (a_.send_stride == 0) {
            const uint64_t own = own_unit(unit);
            for (int distance = 1; distance < a_.ranks; ++distance)
                if (const int peer = turned(distance); is_one_of(a_.destination_rank, peer)) send(peer, line, own);
            return;
        }
        send_each(
            line, [&](int peer) { return is_one_of(a_.destination_rank, peer); },
            [&](int peer) { return own_unit(unit, peer); });
    }
    WEFT_DEVICE bool take(int line, uint64_t unit) {
        uint64_t result;
        if (a_.reduces) {
            if (!reduce_line(line, own_unit(unit, a_.rank), result)) return false;
            put_unit(unit, result);
            return true;
        }
        if (is_one_of(a_.source_rank, a_.rank)) put_unit(unit, own_unit(unit, a_.rank), a_.rank);
        return receive_each(
            line, [&](int source) { return source != a_.rank && is_one_of(a_.source_rank, source); },
            [&](int source, uint64_t value) { put_unit(unit, value, source); });
    }

    // The message in rounds of `lines` units per block; equal on all ranks.
    struct Round {
        uint64_t units, rounds;
        int lines;
    };
    WEFT_DEVICE Round rounds_of(int most_lines) const {
        const uint64_t units = (bytes_ + unit_bytes - 1) / unit_bytes, blocks = uint64_t(blocks_);
        // As few as give every block some; sixteen lines are a multiple of a cache line.
        uint64_t lines = (units + blocks - 1) / blocks;
        lines = (lines + 15) / 16 * 16;
        if (lines > uint64_t(most_lines)) lines = uint64_t(most_lines);
        if (lines == 0) lines = 16;
        const uint64_t a_round = lines * blocks;
        return {units, units == 0 ? 1 : (units + a_round - 1) / a_round, int(lines)};
    }
    WEFT_DEVICE uint64_t first_unit(const Round& round, uint64_t number) const {
        return (number * uint64_t(blocks_) + uint64_t(team_.block)) * uint64_t(round.lines);
    }
    WEFT_DEVICE int lines_here(const Round& round, uint64_t first) const {
        if (first >= round.units) return 0;
        const uint64_t left = round.units - first;
        return left < uint64_t(round.lines) ? int(left) : round.lines;
    }

    WEFT_DEVICE int turned(int distance) const {
        const int peer = a_.rank + distance;
        return peer < a_.ranks ? peer : peer - a_.ranks;
    }
    WEFT_DEVICE size_t bytes_of(uint64_t unit) const {
        const uint64_t left = bytes_ - unit * unit_bytes;
        return left < unit_bytes ? size_t(left) : unit_bytes;
    }
    // A unit of the data for `destination`.
    WEFT_DEVICE uint64_t own_unit(uint64_t unit, int destination = 0) const {
        const uint64_t raw =
            load_unit(send_ + uint64_t(destination) * a_.send_stride + unit * unit_bytes, bytes_of(unit));
        return reducer_.scaled() ? scaled(reducer_, raw) : raw;
    }
    static WEFT_DEVICE_COLD uint64_t scaled(Reducer<type, adds> reducer, uint64_t unit) {
        auto wide = Unit<type, adds>::widen(unit);
        for (auto& word : wide.at) word = reducer.scale(word);
        return wide.rounded();
    }
    WEFT_DEVICE void put_unit(uint64_t unit, uint64_t value, int source = 0) const {
        store_unit(receive_ + uint64_t(source) * a_.receive_stride + unit * unit_bytes, bytes_of(unit), value);
    }

    WEFT_DEVICE PacketLine* line_at(int owner, int sender, int line) const {
        return packet_lines(a_.packets[owner], a_.ranks, barrier_.epoch() & 1, team_.block, sender) + line;
    }
    WEFT_DEVICE void send(int peer, int line, uint64_t unit) const {
        store_line(line_at(peer, a_.rank, line), packet_line(unit, barrier_.epoch()));
    }
    WEFT_DEVICE void send_to_all(int line, uint64_t unit) const {
        for (int distance = 1; distance < a_.ranks; ++distance) send(turned(distance), line, unit);
    }
    // Sends a unit to each peer that wants one. All loads of a batch are issued before the first store.
    template <class Wanted, class Load>
    WEFT_DEVICE void send_each(int line, Wanted&& wanted, Load&& load) const {
        WEFT_NO_UNROLL
        for (int near = 1; near < a_.ranks; near += batch) {
            uint64_t units[batch];
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (near + k < a_.ranks && wanted(turned(near + k))) units[k] = load(turned(near + k));
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (near + k < a_.ranks && wanted(turned(near + k))) send(turned(near + k), line, units[k]);
        }
    }

    static WEFT_DEVICE int first_of(uint32_t bits) {
        int bit = 0;
        while ((bits >> bit & 1) == 0) ++bit;
        return bit;
    }
    // Waits for a line from each rank of a batch; bit k of `missing`: from rank first + k. All loads are issued before
    // the first is used.
    WEFT_DEVICE bool receive_batch(int first, uint32_t missing, int line, PacketLine (&seen)[batch]) const {
        return barrier_.spin(
            KernelWait::packet, [&] { return first + first_of(missing); },
            [&] {
                WEFT_UNROLL
                for (int k = 0; k < batch; ++k)
                    if (missing >> k & 1) seen[k] = load_line(line_at(a_.rank, first + k, line));
                WEFT_UNROLL
                for (int k = 0; k < batch; ++k)
                    if ((missing >> k & 1) && is_of(seen[k], barrier_.epoch())) missing &= ~(1u << k);
                return missing == 0;
            });
    }
    // Calls put(sender, unit) for each wanted rank's unit.
    template <class Wanted, class Put>
    WEFT_DEVICE bool receive_each(int line, Wanted&& wanted, Put&& put) const {
        WEFT_NO_UNROLL
        for (int first = 0; first < a_.ranks; first += batch) {
            PacketLine seen[batch] = {};
            uint32_t wanted_here = 0;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (first + k < a_.ranks && wanted(first + k)) wanted_here |= 1u << k;
            if (!receive_batch(first, wanted_here, line, seen)) return false;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (wanted_here >> k & 1) put(first + k, data_of(seen[k]));
        }
        return true;
    }

    // Combines the contributions of all ranks to a line in rank order.
    WEFT_DEVICE bool reduce_line(int line, uint64_t own, uint64_t& result) const {
        Unit<type, adds> value = {};
        WEFT_NO_UNROLL
        for (int first = 0; first < a_.ranks; first += batch) {
            PacketLine seen[batch] = {};
            uint32_t missing = 0;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (first + k < a_.ranks && first + k != a_.rank) missing |= 1u << k;
            if (!receive_batch(first, missing, line, seen)) return false;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k) {
                if (first + k >= a_.ranks) continue;
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
    const Reducer<type, adds> reducer_;
    KernelBarrier barrier_;
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
