// PAT, parallel aggregated trees: all-gather and reduce-scatter for any number of ranks in ceil(log2 N) rounds. The
// farthest round moves a single part, the nearest one half of the parts. So little data crosses between hosts or
// switches, if neighbours share one.
// Each part has its own binomial tree, rooted at its owner. A message carries all parts whose trees have an edge there.
// Between ranks d apart these parts lie 2d apart: the sender packs them and the receiver unpacks them.
// There is no all-reduce of this kind: its chunks differ in size by up to a line, so they cannot be packed in each
// other's places. As an all-reduce, halving_doubling has as many rounds, and its messages need no packing.
// Every message holds all of its parts. If a slot is too small, the tiles are smaller; the paper instead sends several
// messages at the near end.
// Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025.
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

namespace {

// One slot is enough. With two, the next tile travels while the receiver processes this one.
constexpr int pat_fifo_depth = 2;

// The distance of the last round of a reduce-scatter, and of the first round of an all-gather.
int farthest(int ranks) {
    int distance = 1;
    while (2 * distance < ranks) distance *= 2;
    return distance;
}
// The number of parts sent over that distance: those of the owners 0, 2d, 4d .. ranks behind, if a rank is d further.
int count_over(int distance, int ranks) { return (ranks - distance + 2 * distance - 1) / (2 * distance); }

Builder parted(Collective collective, const Layout& layout) {
    if (layout.ranks == 1) return {"pat", collective, layout, {.chunks = 1}};
    return {
        "pat", collective, layout, {.chunks = layout.ranks, .fifo_depth = pat_fifo_depth, .span = layout.ranks / 2}};
}

}  // namespace

Schedule pat_all_gather(const Layout& layout, const Parameters&) {
    const int ranks = layout.ranks, rank = layout.rank;
    Builder schedule = parted(Collective::all_gather, layout);
    const auto behind = [&](int distance) { return Chunk{0, rank - distance, ranks}; };
    StepBuilder own = schedule.block({}).copy({rank}), done = own;
    std::optional<StepBuilder> gate;  // every step that uses scratch follows it
    for (int distance = ranks > 1 ? farthest(ranks) : 0; distance > 0; distance /= 2) {
        const int count = count_over(distance, ranks);
        BlockBuilder block = schedule.block({.source = behind(distance).at(0), .target = behind(-distance).at(0)});
        if (count == 1) {
            block.send({rank}).from(Buffer::output).after(own);
            StepBuilder came = block.recv(behind(distance));
            // A later round forwards the parts from farther away, if it has a rank to send to.
            if (gate && 2 * distance + 1 < ranks)
                came.after(done);
            else
                gate = came;
            done = came;
            continue;
        }
        // Outgoing parts lie at the beginning of scratch, incoming ones behind them.
        block.loop(count)
            .copy(behind(0).then(-2 * distance))
            .from(Buffer::output)
            .to(Buffer::scratch)
            .into(Chunk{0, 0, ranks}.then(1))
            .after(done);
        block.span(count).send({0}).from(Buffer::scratch);
        block.span(count).recv({count}).to(Buffer::scratch);
        done = block.loop(count)
                   .copy(Chunk{0, count, ranks}.then(1))
                   .from(Buffer::scratch)
                   .into(behind(distance).then(-2 * distance));
    }
    // The next tile may use scratch when this tile's last round has ended. If one block alone uses it, program order is
    // enough.
    if (count_over(2, ranks) > 1) gate->after(done, 1);
    return schedule.finish();
}

Schedule pat_reduce_scatter(const Layout& layout, const Parameters&) {
    const int ranks = layout.ranks, rank = layout.rank;
    Builder schedule = parted(Collective::reduce_scatter, layout);
    if (ranks == 1) {
        schedule.block({}).copy({0}).finish();
        return schedule.finish();
    }
    // This rank's sums for the owners 0, d, 2d .. behind it, in that order: every second one is sent. The others stay
    // and are reduced with those from d ahead.
    // The sums are first the input. Then they lie packed in scratch, outgoing before staying ones, alternately at its
    // beginning and at its end. With 7 ranks: sends 1 3 5, keeps 0 2 4 6, in places 0 to 6; then sends 2 6, keeps 0 4,
    // in places 0 to 3. The last one there takes the place of the first, which has been sent by then.
    const auto starts_at = [&](int round, int held) { return round % 2 == 0 ? ranks - held : 0; };
    // Chosen so that the last sum, the rank's own, lies at the position of the rank's part.
    int last = 0;
    for (int held = ranks, round = 0; held > 2; held -= held / 2, ++round) last = starts_at(round, held) + held / 2;
    const auto place = [&](int number) { return Chunk{0, rank - last + number, ranks}; };
    const auto behind = [&](int owner) { return Chunk{0, rank - owner, ranks}; };
    int begin = 0;  // position of the sums, from the second round on
    int held = ranks;
    std::optional<StepBuilder> first, sum;
    for (int distance = 1, round = 0; distance < ranks; distance *= 2, ++round) {
        const auto sums = [&](int number, int step) {
            return round == 0 ? behind(number).then(-step) : place(begin + number).then(step);
        };
        const Buffer where = round == 0 ? Buffer::input : Buffer::scratch;
        BlockBuilder block = schedule.block({.source = behind(-distance).at(0), .target = behind(distance).at(0)});
        if (held == 2) {
            StepBuilder sent = block.send(sums(1, 0)).from(where);
            if (sum) sent.after(*sum);
            sum = block.recv_reduce_copy(sums(0, 0)).from(where).finish();
            continue;
        }
        const int count = held / 2, next = starts_at(round, held);
        StepBuilder going =
            block.loop(count).copy(sums(1, 2)).from(where).to(Buffer::scratch).into(place(next).then(1));
        if (sum) going.after(*sum);
        if (!first) first = going;
        block.loop(held - count).copy(sums(0, 2)).from(where).to(Buffer::scratch).into(place(next + count).then(1));
        block.span(count).send(place(next)).from(Buffer::scratch);
        begin = next + count;
        sum = block.span(count).recv_reduce_copy(place(begin)).from(Buffer::scratch).to(Buffer::scratch);
        held -= count;
    }
    // The next tile's first round begins when this tile's last one has ended.
    if (first) first->after(*sum, 1);
    return schedule.finish();
}

static double rounds_us(const Layout& layout, const LinkCosts& costs, size_t bytes, Network::ReceivedData coming) {
    const int ranks = layout.ranks;
    if (ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    Network::Rounds rounds;
    for (int distance = 1; distance < ranks; distance *= 2) {
        const int count = count_over(distance, ranks);
        const double sent = double(bytes) * count / ranks;
        network.add_round(rounds, distance, sent, coming);
        // Packing and unpacking.
        if (count > 1) rounds.handling_us += 2 * costs.stream_us(size_t(sent), 3 * bytes);
    }
    return Network::in_turn_us(rounds, double(bytes), 2 * double(costs.net_slot_bytes));
}
double pat_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rounds_us(layout, costs, bytes, Network::ReceivedData::finished);
}
double pat_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rounds_us(layout, costs, bytes, Network::ReceivedData::parts);
}

}  // namespace weft::internal
