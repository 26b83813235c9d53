// table_test.cpp: the table over the C API: each algorithm of the registry and each uneven collective. Memory is the
// host's or the fake driver's; the environment decides between shared memory and TCP. Two-level algorithms need several
// hosts of several ranks, which are processes: hosts_table_test.cpp.
#include <set>

#include "tests/conformance/uneven_table.hpp"

namespace weft::internal::test {

namespace {

using Kind = DeviceBuffer::Kind;

std::vector<int> rank_counts() {
    if (!small()) return {1, 2, 3, 5, 8};
    return sanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 8};
}

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

std::set<std::string> names() {
    std::set<std::string> all;
    for (const Algorithm& row : registry::algorithms()) all.insert(row.name);
    return all;
}

// Every algorithm of a name, on communicators that admit no other. Returns the served ones, by name and collective.
std::set<std::string> check_all(Kind kind, std::mt19937& random) {
    Checks checks(random);
    std::set<std::string> served;
    for (const std::string& name : names())
        for (const int n : rank_counts()) {
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
                if (checks.check(ranks, Table{row->collective, rank_counts()}, kind))
                    served.insert(name + " " + facts_of(row->collective).name);
            }
        }
    CHECK(checks.calls() > int(served.size()));
    return served;
}

// Those of uneven parts are messages, but for reductions on devices, which are of the algorithm that is named.
void check_uneven(Kind kind, std::mt19937& random) {
    Checks checks(random);
    const bool on_device = !DeviceBuffer::on_host(kind);
    int reduced = 0;
    for (const int n : rank_counts()) {
        INFO(n << " ranks");
        const Ranks ranks(spread(n));
        for (const Collective collective : uneven_collectives)
            CHECK(checks.check(ranks, UnevenTable{collective, rank_counts(), on_device}, kind));
        for (const Algorithm& row : registry::algorithms()) {
            if (!on_device || row.collective != Collective::reduce || row.refusal(layout_of_ranks(n))) continue;
            INFO(row.name);
            const weftConfig_t config = with_algo(row.name);
            reduced += checks.check(Ranks(spread(n), &config),
                                    UnevenTable{Collective::reduce_scatter_v, rank_counts(), true}, kind);
        }
    }
    CHECK(checks.calls() > 0);
    CHECK((reduced > int(rank_counts().size())) == on_device);
}

}  // namespace

TEST_CASE("every two values of two columns of a table meet in some line", "[table]") {
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
    const int n = rank_counts().back();
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

TEST_CASE("collectives of uneven parts agree with the model", "[table][uneven]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    check_uneven(GENERATE(Kind::host, Kind::host_shared, Kind::plain), random);
}

}  // namespace weft::internal::test
