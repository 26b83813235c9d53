// packet_two_shot.hpp: all-reduces of two hops by packets. A block's units of a round are divided among the ranks. Each
// rank sends every owner its part, reduces the part that it owns, and sends the results to all. Ranks send to themselves,
// too, so no unit has a path of its own. Groups of warps send to one peer each, and take its results.
// Floating-point numbers use full lines, and others lines with epochs.
// Rounds of full lines overlap: while a rank sends one, it reduces the one before, and takes the results of the one before
// that. So links are never idle. A rank that announces epoch e has taken all results up to epoch e - 3, and has seen their
// lines cleared, or has ended the kernel. All ranks have announced epoch e - 1 when a rank sends in epoch e, so four
// memories alternate, by the epoch. Rounds of other lines do not overlap, and two memories suffice, as in packets.hpp.
// Source: Shah et al., "MSCCL++: Rethinking GPU Communication Abstractions for AI Inference", 2025.
#pragma once
#include <type_traits>

#include "src/gpu/kernels/packets/packet_line.hpp"
#include "src/gpu/kernels/packets/packet_pieces.hpp"

namespace weft::internal::cuda {

// One block of one rank.
template <weftDataType_t type, bool adds, class Form>
class TwoShotPackets : PacketPieces<type, adds, Form::unit_bytes> {
    using Base = PacketPieces<type, adds, Form::unit_bytes>;
    using Data = typename Base::Data;
    using Elements = Unit<type, adds, Form::unit_bytes>;
    using Base::a_, Base::reducer_, Base::team_;
    using Base::for_ranks, Base::lines_of, Base::own_unit, Base::prefetch_input, Base::prefetch_next, Base::put_unit;
    using Base::rounds_of;

  public:
    WEFT_DEVICE TwoShotPackets(const Team& team, const KernelArguments& arguments)
        : Base(team, arguments),
          // in flight together with KernelBarrier::failure()
          barrier_(team, arguments, load_relaxed(&arguments.own->epoch[team.block])) {}

    // A thread reads and writes the same units of the buffers, so the two may be equal.
    WEFT_DEVICE void run() {
        const uint32_t failure = barrier_.failure();
        const PacketRounds round = rounds_of(Form::share_most(a_.ranks) * a_.ranks);
        PacketLines lines = lines_of(round, 0);
        prefetch_input(lines, 1);
        if (!barrier_.begin(failure)) return;
        const uint32_t epoch = barrier_.epoch() + 1, lag = Form::overlap && round.rounds > 1;
        for (uint32_t turn = 0; turn < round.rounds || turn - 2 * lag < round.rounds; ++turn) {
            if (turn < round.rounds) {
                if (turn != 0 && !barrier_.await(KernelWait::packet)) return;
                barrier_.announce();
            }
            barrier_.at_tile(turn);
            bool succeeds = true;
            WEFT_UNROLL
            for (uint32_t part = 0; part < 3; ++part) {
                const uint32_t number = turn - part * lag;
                if (!succeeds || number >= round.rounds) continue;
                if (turn != 0 && (lag != 0 || part == 0)) lines = lines_of(round, number);
                // The next kernel's first round may use the buffer of the fourth round from the end before this one ends.
                const bool reused = number + Form::buffers <= round.rounds;
                succeeds = for_ranks(true, [&](auto fixed) {
                    if (part == 0) return send_units<fixed>(lines, share<fixed>(round), epoch + number);
                    if (part == 1) return reduce_units<fixed>(lines, share<fixed>(round), epoch + number, reused);
                    return take_results<fixed>(lines, share<fixed>(round), epoch + number, reused);
                });
                if (part == 0 && turn + 1 < round.rounds) prefetch_next(round, lines);
            }
            if (team_.any(!succeeds)) return;
        }
        if (barrier_.await(KernelWait::packet)) barrier_.leave();
    }

  private:
    // Lines to reduce, units of the input, and results of one peer that a thread loads together.
    static constexpr int batch = 8, contributions = 2, results = 4;

    // The units of each rank in a round.
    template <int fixed>
    WEFT_DEVICE int share(const PacketRounds& round) const {
        const uint32_t ranks = uint32_t(this->template ranks<fixed>());
        return int((uint32_t(round.lines) + ranks - 1) / ranks);
    }
    // The functions below are of one thread. False: leave. epoch: of the round. reused: the lines may serve another round
    // before this kernel ends.
    template <int fixed>
    WEFT_DEVICE bool send_units(const PacketLines& lines, int share, uint32_t epoch) const {
        return each_peer<fixed>([&](int peer, int first, int stride) {
            const int begin = peer * share;
            PacketLine* const packets = a_.packets[peer];
            const int end = share < lines.count - begin ? share : lines.count - begin;
            for (int line = first; line < end; line += contributions * stride) {
                Data units[contributions];
                WEFT_UNROLL
                for (int k = 0; k < contributions; ++k)
                    if (line + k * stride < end) units[k] = own_unit(lines, begin + line + k * stride);
                WEFT_UNROLL
                for (int k = 0; k < contributions; ++k)
                    if (line + k * stride < end)
                        send(packets + place_of<fixed>(epoch, false, a_.rank, line + k * stride), units[k], epoch);
            }
            return true;
        });
    }
    template <int fixed>
    WEFT_DEVICE bool reduce_units(const PacketLines& lines, int share, uint32_t epoch, bool reused) const {
        const int ranks = this->template ranks<fixed>(), stride = Form::sender_stride(ranks);
        for (int line = team_.thread; line < share && a_.rank * share + line < lines.count; line += team_.threads) {
            PacketLine* const from = own_packets() + place_of<fixed>(epoch, false, 0, line);
            Data result;
            if (!reduce_line<fixed>(from, epoch, result)) return false;
            const uint32_t place = place_of<fixed>(epoch, true, a_.rank, line);
            WEFT_UNROLL
            for (int k = 1; k <= ranks; ++k) send(a_.packets[this->template turned<fixed>(k)] + place, result, epoch);
            constexpr int most = fixed != 0 ? fixed : batch;
            WEFT_NO_UNROLL
            for (int first = 0; first < ranks; first += most)
                if (!clear<most>(reused, ranks - first, from + first * stride, stride)) return false;
        }
        return true;
    }
    template <int fixed>
    WEFT_DEVICE bool take_results(const PacketLines& lines, int share, uint32_t epoch, bool reused) const {
        return each_peer<fixed>([&](int peer, int first, int stride) {
            const int begin = peer * share, end = share < lines.count - begin ? share : lines.count - begin;
            for (int line = first; line < end; line += results * stride)
                if (!take_lines<fixed>(lines, peer, begin, line, stride, end, epoch, reused)) return false;
            return true;
        });
    }
    // The results of one peer for its units line, line + stride, ...
    template <int fixed>
    WEFT_DEVICE bool take_lines(const PacketLines& lines, int peer, int begin, int line, int stride, int end,
                                uint32_t epoch, bool reused) const {
        PacketLine seen[results];
        PacketLine* at[results];
        WEFT_UNROLL
        for (int k = 0; k < results; ++k)
            at[k] =
                own_packets() + place_of<fixed>(epoch, true, peer, line + k * stride < end ? line + k * stride : line);
        const bool came = await_lines(
            seen, epoch, [&](int k) { return at[k]; }, [&](int) { return peer; });
        if (!came) return false;
        WEFT_UNROLL
        for (int k = 0; k < results; ++k) {
            if (line + k * stride >= end) continue;
            put_unit(lines, begin + line + k * stride, Form::data_of(seen[k]));
        }
        return clear<results>(reused, (end - line + stride - 1) / stride, at[0], int(at[1] - at[0]));
    }
    // Clears lines that this thread has read: `most`, or `count` if that is less. waits: until it reads them as clear, so that
    // a credit covers them. Without a wait the end of the kernel does.
    template <int most>
    WEFT_DEVICE bool clear(bool waits, int count, PacketLine* from, int stride) const {
        if constexpr (Form::are_cleared) {
            WEFT_UNROLL
            for (int k = 0; k < most; ++k)
                if (k < count) store_line(from + k * stride, {});
            if (waits)
                return barrier_.spin(
                    KernelWait::packet, [&] { return a_.rank; },
                    [&] { return are_clear(from, stride, count < most ? count : most); });
        }
        return true;
    }
    // Combines the contributions of all ranks to an own unit in rank order. from: that of rank 0.
    template <int fixed>
    WEFT_DEVICE bool reduce_line(const PacketLine* from, uint32_t epoch, Data& result) const {
        const int ranks = this->template ranks<fixed>(), stride = Form::sender_stride(ranks);
        Elements value = {};
        WEFT_NO_UNROLL
        for (int first = 0; first < ranks; first += batch, from += batch * stride) {
            constexpr int most = fixed != 0 ? fixed : batch;
            const int count = ranks - first;
            PacketLine seen[most];
            const bool came = await_lines(
                seen, epoch, [&](int k) { return from + (fixed != 0 || k < count ? k : 0) * stride; },
                [&](int k) { return first + k; });
            if (!came) return false;
            // Few calls have shares, and their multiplications take as long as the sums.
            const auto add = [&](auto shares) {
                WEFT_UNROLL
                for (int k = 0; k < most; ++k) {
                    if (fixed == 0 && k >= count) continue;
                    auto wide = Elements::widen(Form::data_of(seen[k]));
                    WEFT_UNROLL
                    for (auto& word : wide.at)
                        if (shares) word = reducer_.contribution(word);
                    value = first + k == 0 ? wide : combine(reducer_, value, wide);
                }
            };
            if (adds && reducer_.shares())
                add(std::true_type());
            else
                add(std::false_type());
        }
        value.finish(reducer_);
        result = value.rounded();
        return true;
    }

    // At most eight lines, which are loaded together. Out of line, because long messages alone need it.
    static WEFT_DEVICE_COLD bool are_clear(const PacketLine* from, int stride, int count) {
        PacketLine seen[batch];
        WEFT_UNROLL
        for (int k = 0; k < batch; ++k) seen[k] = load_line(from + (k < count ? k : 0) * stride);
        uint32_t left = 0;
        WEFT_UNROLL
        for (int k = 0; k < batch; ++k) left |= seen[k].epoch0 | seen[k].epoch1;
        return left == 0;
    }

    // Calls use(peer, first unit, stride) for the units of each peer's part that this thread carries. A group of warps has
    // one peer, or, if there are more ranks than warps, one after another.
    template <int fixed, class Use>
    WEFT_DEVICE bool each_peer(Use&& use) const {
        constexpr uint32_t warp = warp_threads;
        const uint32_t ranks = uint32_t(this->template ranks<fixed>()), warps = uint32_t(team_.threads) / warp;
        const uint32_t groups = warps >= ranks ? warps / ranks : 1;  // of each peer
        const uint32_t lane = uint32_t(team_.thread) % warp;
        for (uint32_t group = uint32_t(team_.thread) / warp; group < ranks * groups; group += warps)
            if (!use(this->template turned<fixed>(int(group % ranks)), int(group / ranks * warp + lane),
                     int(groups * warp)))
                return false;
        return true;
    }

    // Waits for lines. All loads are issued before the first is used.
    template <int most, class At, class Sender>
    WEFT_DEVICE bool await_lines(PacketLine (&seen)[most], uint32_t epoch, At&& at, Sender&& sender) const {
        const auto missing = [&] {
            int none = most;
            WEFT_UNROLL
            for (int k = most - 1; k >= 0; --k)
                if (!Form::has_arrived(seen[k], epoch)) none = k;
            return none;
        };
        return barrier_.spin(
            KernelWait::packet, [&] { return sender(missing()); },
            [&] {
                WEFT_UNROLL
                for (int k = 0; k < most; ++k) seen[k] = load_line(at(k));
                bool all = true;
                WEFT_UNROLL
                for (int k = 0; k < most; ++k) all = all && Form::has_arrived(seen[k], epoch);
                return all;
            });
    }
    WEFT_DEVICE void send(PacketLine* to, const Data& data, uint32_t epoch) const {
        store_line(to, Form::line_of(data, epoch));
    }
    WEFT_DEVICE PacketLine* own_packets() const { return a_.packets[a_.rank]; }
    // Equal for all owners of packet memory.
    template <int fixed>
    WEFT_DEVICE uint32_t place_of(uint32_t epoch, bool result, int sender, int line) const {
        return Form::index(this->template ranks<fixed>(), epoch, team_.block, result, sender, line);
    }

    KernelBarrier barrier_;
};

template <weftDataType_t type, bool adds>
WEFT_DEVICE void packet_two_shot(const Team& team, const KernelArguments& arguments) {
    using Form = std::conditional_t<std::is_floating_point_v<AccumulatorOf<type>>, FullLines, EpochLines>;
    TwoShotPackets<type, adds, Form>(team, arguments).run();
}

}  // namespace weft::internal::cuda
