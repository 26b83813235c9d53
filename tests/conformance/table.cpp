#include "tests/conformance/table.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace weft::internal::test {

// Each line begins with a pair that has not met yet, and of some draws of the rest takes the one with the most of those.
std::vector<Line> all_pairs_of(const std::vector<int>& sizes, std::mt19937& random) {
    constexpr int draws = 12;
    using Pair = std::array<int, 4>;  // column, value, and those of a later column
    const int columns = int(sizes.size());
    std::set<Pair> left;
    for (int a = 0; a < columns; ++a)
        for (int b = a + 1; b < columns; ++b)
            for (int in_a = 0; in_a < sizes[size_t(a)]; ++in_a)
                for (int in_b = 0; in_b < sizes[size_t(b)]; ++in_b) left.insert({a, in_a, b, in_b});
    const auto met = [&](const Line& line) {
        std::vector<Pair> pairs;
        for (int a = 0; a < columns; ++a)
            for (int b = a + 1; b < columns; ++b)
                if (const Pair pair{a, line[size_t(a)], b, line[size_t(b)]}; left.count(pair)) pairs.push_back(pair);
        return pairs;
    };
    std::vector<Line> lines;
    while (!left.empty()) {
        const Pair first = *left.begin();
        Line best;
        for (int draw = 0; draw < draws; ++draw) {
            Line line;
            for (const int size : sizes) line.push_back(int(random() % unsigned(size)));
            line[size_t(first[0])] = first[1];
            line[size_t(first[2])] = first[3];
            if (best.empty() || met(line).size() > met(best).size()) best = line;
        }
        for (const Pair& pair : met(best)) left.erase(pair);
        lines.push_back(best);
    }
    return lines;
}

int reduction_of(int number, weftDataType_t type) {
    if (number == sum_by_function) return weftSum;
    const std::vector<int> ops = reductions_of(type);
    const int op = std::find(ops.begin(), ops.end(), number) != ops.end() ? number : ops[size_t(number) % ops.size()];
    // In another order products of floats are others.
    return op == weftProd && !is_integer(type) ? int(weftMax) : op;
}

std::vector<int> Table::sizes() const {
    const CollectiveFacts facts = facts_of(collective);
    return {int(rank_counts.size()), weftNumTypes,         facts.reduces ? reductions_drawn : 1,
            int(std::size(counts)),  facts.rooted ? 3 : 1, 4};
}

Call Table::call(const Line& line, std::mt19937& random) const {
    const CollectiveFacts facts = facts_of(collective);
    const int n = rank_counts[size_t(line[ranks])];
    Call call;
    call.algorithm = registry::find_algorithm("one_shot", collective);
    REQUIRE(call.algorithm);
    call.root = facts.rooted ? std::array{0, n / 2, n - 1}[size_t(line[root])] : -1;
    call.type = weftDataType_t(line[type]);
    call.op = facts.reduces ? reduction_of(line[op], call.type) : int(weftSum);
    call.by_function = line[op] == sum_by_function;
    const size_t whole = counts[line[count]], parts = size_t(parts_of(collective, n));
    const size_t elements = (whole + parts - 1) / parts;
    const auto where = Placement(line[placement]);
    call.extreme = call.op == weftAvg && !is_integer(call.type) && random() % 2 == 0;
    if (call.extreme)
        call.inputs = reference::extremes(
            call.type, elements * (call.collective() == Collective::reduce_scatter ? parts : 1), n, random);
    for (int rank = 0; rank < n; ++rank) {
        const size_t held = elements * size_t(parts_held(call.input_held(rank), int(parts)));
        if (!call.extreme) call.inputs.push_back(reference::whole(call.type, held, n, rank, random));
        if (call.op == premul) call.scalars.push_back(reference::whole_scalar(call.type, random));
        call.in_place.push_back(!facts.transposes && (where == Placement::in_place ||
                                                      (where == Placement::in_place_on_some && rank % 2 == 0)));
    }
    if (where == Placement::beside_lines) {
        call.send_offset = (1 + random() % 7) * size_of(call.type);
        call.receive_offset = (1 + random() % 7) * size_of(call.type);
    }
    call.tile_bytes = std::max<size_t>(64, elements * size_of(call.type));
    return call;
}

namespace {

// Of averages at the ends of the type's range. `own`: the results of this process's ranks.
std::string fault_of_extreme(const Call& call, const std::vector<Bytes>& own, int first_rank) {
    for (size_t i = 0; i < own.size(); ++i) {
        const int rank = first_rank + int(i);
        if (call.output_held(rank) == Held::nothing) continue;
        const size_t wrong = reference::first_beyond_roundings(call.type, call.contributions_to(rank), call.ranks(),
                                                               false, own[i].data());
        if (wrong < own[i].size() / size_of(call.type))
            return fmt::format("rank {}, element {} is beyond its roundings", rank, wrong);
        if (call.collective() == Collective::all_reduce && own[i] != own[0])
            return fmt::format("rank {} has other bits than rank {}", rank, first_rank);
    }
    return {};
}

}  // namespace

std::string fault_of(const Ranks& ranks, const Call& call, DeviceBuffer::Kind kind) {
    const Buffers buffers(ranks, call, kind);
    enqueue(ranks, call, buffers);
    ranks.finish();
    ranks.check_healthy();
    // Each process checks the results of its own ranks.
    const std::vector<Bytes> own = buffers.results();
    if (call.extreme) {
        if (const std::string fault = fault_of_extreme(call, own, ranks.first); !fault.empty()) return fault;
        const int rank = buffers.spoilt(call);
        return rank < 0 ? "" : "rank " + std::to_string(rank) + " wrote what is not its result";
    }
    const std::vector<Bytes> right = expected(call);
    std::vector<Bytes> got = right;
    std::copy(own.begin(), own.end(), got.begin() + ranks.first);
    if (const auto where = difference(call, got, right)) return *where;
    const int rank = buffers.spoilt(call);
    return rank < 0 ? "" : "rank " + std::to_string(rank) + " wrote what is not its result";
}

}  // namespace weft::internal::test
