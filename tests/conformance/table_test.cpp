// table_test.cpp: the table of what Weft serves, by the C API: each algorithm of the registry, on host memory and on the
// fake driver's device memory, over what the environment leaves between the ranks (shared memory, or TCP), for so many
// ranks, with each type, reduction, count, root and placement of buffers. Their product explodes: of these six columns
// every two values of two columns meet in some call. All are held against the interpreter, on data that is exact in
// any order. Two-level algorithms want several hosts of several ranks, which are processes: tests/comm.
#include <algorithm>
#include <array>
#include <set>

#include "tests/device/calls.hpp"

namespace weft::test {

namespace {

using Kind = DeviceBuffer::Kind;

// An index for each column.
using Line = std::vector<int>;

// Lines of indices below `sizes` in which every two values of two columns meet: each begins with a pair that has not met
// yet, and of some draws of the rest takes the one with the most of those.
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

// The columns: what their values are for a collective.
struct Table {
    static constexpr size_t counts[] = {0, 1, 13, 700, 9'000};  // of the whole
    enum class Placement { apart, in_place, in_place_on_some, beside_lines };
    enum Column { ranks, type, op, count, root, placement };

    Collective collective;
    std::vector<int> rank_counts = small() ? std::vector{1, 3} : std::vector{1, 2, 3, 5, 8};

    std::vector<int> sizes() const {
        const CollectiveFacts facts = facts_of(collective);
        return {int(rank_counts.size()), weftNumTypes,         facts.reduces ? premul + 1 : 1,
                int(std::size(counts)),  facts.rooted ? 3 : 1, 4};
    }
    Call call(const Line& line, std::mt19937& random) const {
        const CollectiveFacts facts = facts_of(collective);
        const int n = rank_counts[size_t(line[ranks])];
        Call call;
        call.algorithm = registry::find_algorithm("one_shot", collective);
        REQUIRE(call.algorithm);
        call.root = facts.rooted ? std::array{0, n / 2, n - 1}[size_t(line[root])] : -1;
        call.type = weftDataType_t(line[type]);
        const std::vector<int> ops = reductions_of(call.type);
        call.op = !facts.reduces                                             ? int(weftSum)
                  : std::find(ops.begin(), ops.end(), line[op]) != ops.end() ? line[op]
                                                                             : ops[size_t(line[op]) % ops.size()];
        // In another order products of floats are others.
        if (call.op == weftProd && !is_integer(call.type)) call.op = weftMax;
        const size_t whole = counts[line[count]], parts = size_t(parts_of(collective, n));
        const size_t elements = (whole + parts - 1) / parts;
        const auto where = Placement(line[placement]);
        for (int rank = 0; rank < n; ++rank) {
            const size_t held = elements * size_t(parts_held(call.input_held(rank), int(parts)));
            call.inputs.push_back(reference::whole(call.type, held, n, rank, random));
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
};

// Every rank is a host of its own.
bool several_hosts() {
    const char* transports = getenv("WEFT_TRANSPORTS");
    return transports && std::string(transports) == "tcp";
}
Layout layout_of_ranks(int ranks) {
    std::vector<int32_t> hosts;
    for (int rank = 0; rank < ranks && several_hosts(); ++rank) hosts.push_back(rank);
    return {ranks, 0, hosts};
}

// The calls of a collective's table, by whatever algorithm the ranks admit.
class Checks {
  public:
    explicit Checks(std::mt19937& random) : random_(random) {}

    // Those for so many ranks. False: this memory is not served by the algorithm at all.
    bool check(const Ranks& ranks, Collective collective, Kind kind) {
        const Table table{collective};
        for (const Line& line : lines(table)) {
            if (table.rank_counts[size_t(line[Table::ranks])] != ranks.count()) continue;
            if (small() && random_() % 3 != 0) continue;
            const Call call = table.call(line, random_);
            INFO(call.text());
            const Buffers buffers(ranks, call, kind);
            try {
                enqueue(ranks, call, buffers);
            } catch (const std::exception& refused) {
                if (buffers.on_host() || !contains(refused.what(), "is served by none of what it admits")) throw;
                return false;
            }
            ranks.finish();
            ranks.check_healthy();
            if (const auto where = difference(call, buffers.results(), expected(call))) FAIL_CHECK(*where);
            if (const int rank = buffers.spoilt(call); rank >= 0)
                FAIL_CHECK("rank " << rank << " wrote what is not its result");
            ++calls_;
        }
        return true;
    }
    int calls() const { return calls_; }

  private:
    // One table for all algorithms of a collective.
    const std::vector<Line>& lines(const Table& table) {
        auto& known = lines_[table.collective];
        if (known.empty()) known = all_pairs_of(table.sizes(), random_);
        return known;
    }
    std::mt19937& random_;
    std::map<Collective, std::vector<Line>> lines_;
    int calls_ = 0;
};

std::set<std::string> names() {
    std::set<std::string> all;
    for (const Algorithm& row : registry::algorithms()) all.insert(row.name);
    return all;
}

// Every algorithm of a name, on communicators that admit no other. By name and collective: who served.
std::set<std::string> check_all(Kind kind, std::mt19937& random) {
    Checks checks(random);
    std::set<std::string> served;
    for (const std::string& name : names())
        for (const int n : Table{Collective::all_reduce}.rank_counts) {
            std::vector<const Algorithm*> rows;
            for (const Algorithm& row : registry::algorithms())
                if (row.name == name && !row.refusal(layout_of_ranks(n))) rows.push_back(&row);
            if (rows.empty()) continue;
            INFO(name << " on " << n << " ranks");
            const weftConfig_t config = with_algo(name.c_str());
            const Ranks ranks(spread(n), &config);
            for (const Algorithm* row : rows) {
                if (row->collective == Collective::barrier) {
                    ranks.group([&](int rank) { return weftBarrier(ranks.comms[size_t(rank)], nullptr); });
                    continue;
                }
                if (checks.check(ranks, row->collective, kind))
                    served.insert(name + " " + facts_of(row->collective).name);
            }
        }
    CHECK(checks.calls() > int(served.size()));
    return served;
}

}  // namespace

TEST_CASE("of a table's lines every two values of two columns meet in some", "[table]") {
    std::mt19937 random(seed());
    const std::vector<int> sizes{3, 1, 7, 4};
    const std::vector<Line> lines = all_pairs_of(sizes, random);
    CHECK(lines.size() < 3 * 7 * 4);
    for (size_t a = 0; a < sizes.size(); ++a)
        for (size_t b = a + 1; b < sizes.size(); ++b) {
            std::set<std::pair<int, int>> met;
            for (const Line& line : lines) met.insert({line[a], line[b]});
            CHECK(int(met.size()) == sizes[a] * sizes[b]);
        }
}

TEST_CASE("every algorithm agrees with the reference on host memory", "[table]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const Kind kind = GENERATE(Kind::host, Kind::host_shared);
    const std::set<std::string> served = check_all(kind, random);
    // All that do not want several ranks a host.
    const int n = Table{Collective::all_reduce}.rank_counts.back();
    for (const Algorithm& row : registry::algorithms())
        if (row.collective != Collective::barrier && !row.refusal(layout_of_ranks(n)))
            CHECK(served.count(std::string(row.name) + " " + facts_of(row.collective).name) == 1);
}

TEST_CASE("every algorithm that kernels serve agrees with the reference on device memory", "[table]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const std::set<std::string> served = check_all(Kind::plain, random);
    std::set<std::string> usual = {"ring all_reduce",
                                   "recursive_doubling all_reduce",
                                   "all_pairs all_reduce",
                                   "ring all_gather",
                                   "double_binary_tree all_reduce",
                                   "pat reduce_scatter",
                                   "all_pairs all_to_all",
                                   "halving_doubling all_reduce",
                                   "binomial_tree broadcast",
                                   "binomial_tree scatter",
                                   "ring reduce",
                                   "linear gather"};
    if (!several_hosts()) usual.insert({"one_shot all_reduce", "two_shot all_reduce", "one_shot all_to_all"});
    for (const std::string& each : usual) {
        INFO(each);
        CHECK(served.count(each) == 1);
    }
}

}  // namespace weft::test
