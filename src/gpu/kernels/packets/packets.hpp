// packets.hpp: collectives of one hop by packets. A line of 16 bytes carries 8 bytes of data and the epoch twice, stored
// straight into the peer's memory. A reader that sees the epoch has the data, so no barrier is needed. It sends twice the
// bytes, so it is for small messages.
// Two memories alternate: a sender in epoch e + 2 has met all peers in e + 1, and they had read epoch e by then.
// Source: NCCL's LL protocol; Shah et al., "MSCCL++: Rethinking GPU Communication Abstractions for AI Inference", 2025.
#pragma once
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/gpu/kernels/packets/packet_line.hpp"
#include "src/gpu/kernels/packets/packet_pieces.hpp"

namespace weft::internal::cuda {

// The packets of one block of one rank.
template <weftDataType_t type, bool adds>
class PacketExchange : PacketPieces<type, adds, EpochLines::unit_bytes> {
    using Base = PacketPieces<type, adds, EpochLines::unit_bytes>;
    using Data = typename Base::Data;
    using Elements = Unit<type, adds, EpochLines::unit_bytes>;
    using Base::a_, Base::blocks_, Base::bytes_, Base::receive_, Base::reducer_, Base::send_, Base::team_;
    using Base::for_ranks, Base::lines_of, Base::own_unit, Base::prefetch_input, Base::put_unit, Base::rounds_of;

  public:
    WEFT_DEVICE PacketExchange(const Team& team, const KernelArguments& arguments)
        : Base(team, arguments),
          // in flight together with KernelBarrier::failure()
          barrier_(team, arguments, load_relaxed(&arguments.own->epoch[team.block])) {}

    // Each source sends each destination its data; each destination combines the data or puts each source's data in its
    // place. A thread sends its lines of a round before it writes any of them, so the two buffers may be equal.
    WEFT_DEVICE void one_shot() {
        const uint32_t failure = barrier_.failure();
        if (a_.batched_count > 0) blocks_ = blocks_of(bytes_);
        PacketRounds round = rounds_of(lines_per_sender(a_.ranks));
        PacketLines lines = lines_of(round, 0);
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

  private:
    static constexpr int batch = 8;  // lines that are loaded together

    // As the host computes them for a kernel of its own; the grid has the blocks of the longest call.
    WEFT_DEVICE int blocks_of(uint64_t bytes) const {
        const uint64_t wanted = (bytes + packet_bytes_a_block - 1) / packet_bytes_a_block;
        return wanted < 1 ? 1 : wanted < uint64_t(team_.blocks) ? int(wanted) : team_.blocks;
    }
    // `lines`: of the first round. False: leave.
    WEFT_DEVICE bool one_shot_rounds(const PacketRounds& round, PacketLines lines) {
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
    WEFT_DEVICE bool one_shot_round(const PacketLines& lines) const {
        if (all_reduces || is_one_of(a_.source_rank, a_.rank))
            for (int line = team_.thread; line < lines.count; line += team_.threads)
                give<fixed, all_reduces>(lines, line);
        if (all_reduces || is_one_of(a_.destination_rank, a_.rank))
            for (int line = team_.thread; line < lines.count; line += team_.threads)
                if (!take<fixed, all_reduces>(lines, line)) return false;
        return true;
    }

    template <int fixed, bool all_reduces>
    WEFT_DEVICE void give(const PacketLines& lines, int line) const {
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
    WEFT_DEVICE bool take(const PacketLines& lines, int line) const {
        const uint64_t mine = all_reduces ? 0 : uint64_t(a_.rank) * a_.send_stride;
        if (all_reduces || a_.reduces) {
            Data result;
            if (!reduce_line<fixed>(line, own_unit(lines, line, mine), result)) return false;
            put_unit(lines, line, result);
            return true;
        }
        const auto put = [&](int source, const Data& value) {
            put_unit(lines, line, value, uint64_t(source) * a_.receive_stride);
        };
        if (is_one_of(a_.source_rank, a_.rank)) put(a_.rank, own_unit(lines, line, mine));
        return receive_each<fixed>(
            line, [&](int source) { return source != a_.rank && is_one_of(a_.source_rank, source); }, put);
    }

    // The place of a sender's line in the packet memory of this epoch, equal for all owners of such memory.
    template <int fixed>
    WEFT_DEVICE uint32_t place_of(int sender, int line) const {
        return packet_index(this->template ranks<fixed>(), barrier_.epoch() & 1, team_.block, sender, line);
    }
    WEFT_DEVICE void send(int peer, uint32_t place, const Data& unit) const {
        store_line(a_.packets[peer] + place, EpochLines::line_of(unit, barrier_.epoch()));
    }
    // To each peer that is wanted.
    template <int fixed, class Wanted>
    WEFT_DEVICE void send_to_all(int line, const Data& unit, Wanted&& wanted) const {
        const uint32_t place = place_of<fixed>(a_.rank, line);
        const int all = this->template ranks<fixed>();
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
        for (int near = 1; near < this->template ranks<fixed>(); near += batch) {
            Data units[batch];
            uint32_t wanted_here = 0;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (near + k < this->template ranks<fixed>() && wanted(this->template turned<fixed>(near + k))) {
                    wanted_here |= 1u << k;
                    units[k] = load(this->template turned<fixed>(near + k));
                }
            const uint32_t place = place_of<fixed>(a_.rank, line);
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (is_in<fixed>(near + k) && (wanted_here >> k & 1))
                    send(this->template turned<fixed>(near + k), place, units[k]);
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
        const int count = this->template ranks<fixed>() - first;
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
                    if (is_in<fixed>(first + k) && EpochLines::has_arrived(seen[k], barrier_.epoch()))
                        missing &= ~(1u << k);
                return missing == 0;
            });
    }
    // Calls put(sender, unit) for each wanted rank's unit.
    template <int fixed, class Wanted, class Put>
    WEFT_DEVICE bool receive_each(int line, Wanted&& wanted, Put&& put) const {
        WEFT_NO_UNROLL
        for (int first = 0; first < this->template ranks<fixed>(); first += batch) {
            PacketLine seen[batch] = {};
            uint32_t wanted_here = 0;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (first + k < this->template ranks<fixed>() && wanted(first + k)) wanted_here |= 1u << k;
            if (!receive_batch<fixed>(first, wanted_here, line, seen)) return false;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k)
                if (is_in<fixed>(first + k) && (wanted_here >> k & 1)) put(first + k, EpochLines::data_of(seen[k]));
        }
        return true;
    }

    // Combines the contributions of all ranks to a line in rank order.
    template <int fixed>
    WEFT_DEVICE bool reduce_line(int line, const Data& own, Data& result) const {
        Elements value = {};
        WEFT_NO_UNROLL
        for (int first = 0; first < this->template ranks<fixed>(); first += batch) {
            PacketLine seen[batch] = {};
            if (!receive_batch<fixed>(first, peers_of_batch<fixed>(first), line, seen)) return false;
            WEFT_UNROLL
            for (int k = 0; k < batch; ++k) {
                if (first + k >= this->template ranks<fixed>()) continue;
                const Data unit = first + k == a_.rank ? own : EpochLines::data_of(seen[k]);
                auto wide = Elements::widen(unit);
                for (auto& word : wide.at) word = reducer_.contribution(word);
                value = first + k == 0 ? wide : combine(reducer_, value, wide);
            }
        }
        value.finish(reducer_);
        result = value.rounded();
        return true;
    }

    KernelBarrier barrier_;
};

template <weftDataType_t type, bool adds>
WEFT_DEVICE void packet_one_shot(const Team& team, const KernelArguments& arguments) {
    PacketExchange<type, adds>(team, arguments).one_shot();
}

}  // namespace weft::internal::cuda
