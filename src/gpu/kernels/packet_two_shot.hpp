// packet_two_shot.hpp: all-reduces of two hops by packets. A block's units of a round are divided among the ranks. Each
// rank sends every owner its part, reduces the part that it owns, and sends the results to all. Ranks send to themselves,
// too, so no unit has a path of its own. Groups of warps send to one peer each, and take its results.
// Floating-point numbers use full lines, and others lines with epochs.
// Two memories alternate as in packets.hpp. A full line is cleared by its reader, before that rank announces the next epoch.
// Source: Shah et al., "MSCCL++: Rethinking GPU Communication Abstractions for AI Inference", 2025.
#pragma once
#include "src/gpu/kernels/packet_line.hpp"
#include "src/gpu/kernels/packet_pieces.hpp"

namespace weft::internal::cuda {

// One block of one rank.
template <weftDataType_t type, bool adds, class Form>
class TwoShotPackets : PacketPieces<type, adds, Form::unit_bytes> {
    using Base = PacketPieces<type, adds, Form::unit_bytes>;
    using Data = typename Base::Data;
    using Elements = Unit<type, adds, Form::unit_bytes>;
    using Base::a_, Base::reducer_, Base::team_;
    using Base::for_ranks, Base::lines_of, Base::own_unit, Base::prefetch_input, Base::put_unit, Base::rounds_of;

  public:
    WEFT_DEVICE TwoShotPackets(const Team& team, const KernelArguments& arguments)
        : Base(team, arguments),
          // in flight together with KernelBarrier::failure()
          barrier_(team, arguments, load_relaxed(&arguments.own->epoch[team.block])) {}

    // A thread reads and writes the same units of the buffers, so the two may be equal.
    WEFT_DEVICE void run() {
        const uint32_t failure = barrier_.failure();
        const PacketRounds round = rounds_of(Form::share_most(a_.ranks) * a_.ranks);
        const int share = int((uint32_t(round.lines) + uint32_t(a_.ranks) - 1) / uint32_t(a_.ranks));  // of each rank
        PacketLines lines = lines_of(round, 0);
        prefetch_input(lines, 1);
        if (!barrier_.begin(failure)) return;
        for (uint32_t number = 0; number < round.rounds; ++number) {
            // Lines that this kernel has cleared need a release. Earlier kernels have ended.
            barrier_.announce(Form::are_cleared && number != 0);
            barrier_.at_tile(number);
            if (number != 0) lines = lines_of(round, number);
            const bool succeeds = for_ranks(true, [&](auto fixed) { return one_round<fixed>(lines, share); });
            if (team_.any(!succeeds) || !barrier_.await(KernelWait::packet)) return;
        }
        barrier_.leave();
    }

  private:
    static constexpr int batch = 8;    // lines that are loaded together
    static constexpr int results = 4;  // the same, of one peer

    // Of one thread. False: leave.
    template <int fixed>
    WEFT_DEVICE bool one_round(const PacketLines& lines, int share) const {
        const int ranks = this->template ranks<fixed>();
        each_peer<fixed>([&](int peer, int first, int stride) {
            const int begin = peer * share;
            PacketLine* const packets = a_.packets[peer];
            for (int line = first; line < share && begin + line < lines.count; line += stride)
                send(packets + place_of<fixed>(false, a_.rank, line), own_unit(lines, begin + line));
            return true;
        });
        for (int line = team_.thread; line < share && a_.rank * share + line < lines.count; line += team_.threads) {
            Data result;
            if (!reduce_line<fixed>(line, result)) return false;
            const uint32_t place = place_of<fixed>(true, a_.rank, line);
            WEFT_UNROLL
            for (int k = 1; k <= ranks; ++k) send(a_.packets[this->template turned<fixed>(k)] + place, result);
            clear<fixed>(line);
        }
        return each_peer<fixed>([&](int peer, int first, int stride) {
            const int begin = peer * share, end = share < lines.count - begin ? share : lines.count - begin;
            for (int line = first; line < end; line += results * stride)
                if (!take_results<fixed>(lines, peer, begin, line, stride, end)) return false;
            return true;
        });
    }
    // The results of one peer for its units line, line + stride, ...
    template <int fixed>
    WEFT_DEVICE bool take_results(const PacketLines& lines, int peer, int begin, int line, int stride, int end) const {
        PacketLine seen[results];
        PacketLine* at[results];
        WEFT_UNROLL
        for (int k = 0; k < results; ++k)
            at[k] = own_packets() + place_of<fixed>(true, peer, line + k * stride < end ? line + k * stride : line);
        const bool came = await_lines(
            seen, [&](int k) { return at[k]; }, [&](int) { return peer; });
        if (!came) return false;
        WEFT_UNROLL
        for (int k = 0; k < results; ++k) {
            if (line + k * stride >= end) continue;
            put_unit(lines, begin + line + k * stride, Form::data_of(seen[k]));
            if (Form::are_cleared) store_line(at[k], {});
        }
        return true;
    }
    // Combines the contributions of all ranks to an own unit in rank order.
    template <int fixed>
    WEFT_DEVICE bool reduce_line(int line, Data& result) const {
        const int ranks = this->template ranks<fixed>(), stride = Form::sender_stride(ranks);
        Elements value = {};
        WEFT_NO_UNROLL
        for (int first = 0; first < ranks; first += batch) {
            constexpr int most = fixed != 0 ? fixed : batch;
            const int count = ranks - first;
            const PacketLine* const from = own_packets() + place_of<fixed>(false, first, line);
            PacketLine seen[most];
            const bool came = await_lines(
                seen, [&](int k) { return from + (fixed != 0 || k < count ? k : 0) * stride; },
                [&](int k) { return first + k; });
            if (!came) return false;
            WEFT_UNROLL
            for (int k = 0; k < most; ++k) {
                if (fixed == 0 && k >= count) continue;
                auto wide = Elements::widen(Form::data_of(seen[k]));
                WEFT_UNROLL
                for (auto& word : wide.at) word = reducer_.contribution(word);
                value = first + k == 0 ? wide : combine(reducer_, value, wide);
            }
        }
        value.finish(reducer_);
        result = value.rounded();
        return true;
    }
    template <int fixed>
    WEFT_DEVICE void clear(int line) const {
        if (!Form::are_cleared) return;
        const int ranks = this->template ranks<fixed>(), stride = Form::sender_stride(ranks);
        PacketLine* const from = own_packets() + place_of<fixed>(false, 0, line);
        WEFT_UNROLL
        for (int k = 0; k < ranks; ++k) store_line(from + k * stride, {});
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
    WEFT_DEVICE bool await_lines(PacketLine (&seen)[most], At&& at, Sender&& sender) const {
        const auto missing = [&] {
            int none = most;
            WEFT_UNROLL
            for (int k = most - 1; k >= 0; --k)
                if (!Form::has_arrived(seen[k], barrier_.epoch())) none = k;
            return none;
        };
        return barrier_.spin(
            KernelWait::packet, [&] { return sender(missing()); },
            [&] {
                WEFT_UNROLL
                for (int k = 0; k < most; ++k) seen[k] = load_line(at(k));
                bool all = true;
                WEFT_UNROLL
                for (int k = 0; k < most; ++k) all = all && Form::has_arrived(seen[k], barrier_.epoch());
                return all;
            });
    }
    WEFT_DEVICE void send(PacketLine* to, const Data& data) const {
        store_line(to, Form::line_of(data, barrier_.epoch()));
    }
    WEFT_DEVICE PacketLine* own_packets() const { return a_.packets[a_.rank]; }
    // Equal for all owners of packet memory.
    template <int fixed>
    WEFT_DEVICE uint32_t place_of(bool result, int sender, int line) const {
        return Form::index(this->template ranks<fixed>(), barrier_.epoch() & 1, team_.block, result, sender, line);
    }

    KernelBarrier barrier_;
};

template <weftDataType_t type, bool adds>
WEFT_DEVICE void packet_two_shot(const Team& team, const KernelArguments& arguments) {
    using Form = std::conditional_t<std::is_floating_point_v<AccumulatorOf<type>>, FullLines, EpochLines>;
    TwoShotPackets<type, adds, Form>(team, arguments).run();
}

}  // namespace weft::internal::cuda
