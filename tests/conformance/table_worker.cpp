// table_worker.cpp: a process of hosts_table_test.cpp's, which says by its environment which ranks of which job it has.
#include <iostream>
#include <iterator>
#include <sstream>

#include "tests/conformance/hosts_table.hpp"
#include "tests/conformance/uneven_table.hpp"
#include "weft/weft.hpp"

namespace weft::internal::test {

namespace {

int number(const char* variable) { return atoi(getenv(variable)); }

}  // namespace

TEST_CASE("a process's ranks agree with the reference", "[worker]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const Spread spread = spreads().at(size_t(number("TABLE_SPREAD")));
    const auto kind = DeviceBuffer::Kind(number("TABLE_KIND"));
    const bool on_device = !DeviceBuffer::on_host(kind);
    std::istringstream words(getenv("TABLE_IDS"));
    const std::vector<std::string> ids{std::istream_iterator<std::string>(words), {}};
    int first = 0;
    for (int process = 0; process < number("TABLE_PROCESS"); ++process)
        first += spread.processes[size_t(process)].ranks;
    std::vector<int> placing;
    for (int own = 0; own < spread.processes[size_t(number("TABLE_PROCESS"))].ranks; ++own)
        placing.push_back((first + own) % devices());
    const auto ranks_under = [&](const std::string& id, const char* algo) {
        const weftConfig_t config = with_algo(algo);
        return std::make_unique<Ranks>(weft::unique_id_from_text(id), spread.ranks(), first, placing, &config);
    };

    Checks checks(random);
    const std::vector<std::string> names = names_of_two_levels();
    REQUIRE(ids.size() == names.size() + 1);
    for (size_t i = 0; i < names.size(); ++i) {
        INFO(names[i]);
        std::unique_ptr<Ranks> ranks;
        for (const Algorithm& row : registry::algorithms()) {
            const std::vector<int> rank_counts = rank_counts_of(row);
            if (row.name != names[i] || row.refusal({spread.ranks(), 0, spread.hosts()})) continue;
            if (!ranks) ranks = ranks_under(ids[i], names[i].c_str());
            if (checks.check(*ranks, Table{row.collective, rank_counts}, kind)) std::cout << served_line(row);
        }
    }
    std::vector<int> all_counts;
    for (const Spread& each : spreads()) all_counts.push_back(each.ranks());
    const auto ranks = ranks_under(ids.back(), nullptr);
    for (const Collective collective : uneven_collectives)
        CHECK(checks.check(*ranks, UnevenTable{collective, all_counts, on_device}, kind));
    CHECK(checks.calls() > 0);
}

}  // namespace weft::internal::test
