// hosts_table_test.cpp: the table's rows for several hosts of several ranks: two-level algorithms and uneven
// collectives. Hosts are simulated (WEFT_HOSTID). Processes of one or more ranks draw the same calls and check their
// own ranks' results (table_worker.cpp).
#include "tests/conformance/hosts_table.hpp"
#include "tests/subprocess.hpp"
#include "weft/weft.hpp"

namespace weft::internal::test {

namespace {

// The calls that its first process reports as served.
std::string run_job(size_t number, DeviceBuffer::Kind kind) {
    const Spread spread = spreads()[number];
    std::string ids;
    for (size_t i = 0; i < names_of_two_levels().size() + 1; ++i) ids += weft::to_text(weft::make_unique_id()) + " ";
    std::vector<std::unique_ptr<Subprocess>> processes;
    for (size_t process = 0; process < spread.processes.size(); ++process) {
        std::vector<std::string> variables{
            "TABLE_IDS=" + ids, "TABLE_KIND=" + std::to_string(int(kind)), "TABLE_SPREAD=" + std::to_string(number),
            "TABLE_PROCESS=" + std::to_string(process),
            "WEFT_HOSTID=node" + std::to_string(spread.processes[process].host),
            "WEFT_TEST_SEED=" + std::to_string(seed()), std::string("WEFT_CUDA_LIBRARY=") + getenv("WEFT_CUDA_LIBRARY"),
            "WEFT_WARN_MS=0",
            // A rank that is slow is not dead.
            "WEFT_TIMEOUT_MS=120000"};
        if (small()) variables.emplace_back("WEFT_TEST_SMALL=1");
        processes.push_back(std::make_unique<Subprocess>(std::vector<std::string>{TABLE_WORKER}, variables));
    }
    for (size_t process = 0; process < processes.size(); ++process) {
        const int status = processes[process]->wait();
        INFO("process " << process << " said:\n" << processes[process]->output() << processes[process]->error());
        CHECK(status == 0);
    }
    return processes[0]->output();
}

}  // namespace

TEST_CASE("every algorithm of two levels agrees with the reference on several hosts of several ranks", "[table]") {
    INFO("seed " << seed());
    using Kind = DeviceBuffer::Kind;
    const Kind kind = GENERATE(Kind::host, Kind::host_shared, Kind::plain);
    std::string said;
    std::mt19937 random(seed() + uint32_t(kind));
    for (size_t number = 0; number < spreads().size(); ++number) {
        INFO(spreads()[number].ranks() << " ranks");
        // Two hosts, of equal and of unequal numbers of ranks, admit every row.
        if (small() && sanitized && number != 1 && number != 2 && random() % 3 != 0) continue;
        said += run_job(number, kind);
    }
    int served = 0;
    for (const Algorithm& row : registry::algorithms()) {
        if (!wants_hosts_of_several(row)) continue;
        INFO(row.name << " " << facts_of(row.collective).name);
        REQUIRE(!rank_counts_of(row).empty());
        // Kernels serve those without a host's flag block.
        const bool by_kernels = std::string(row.name).rfind("rail_", 0) == 0;
        if (DeviceBuffer::on_host(kind) || by_kernels) CHECK(contains(said, served_line(row)));
        served += contains(said, served_line(row));
    }
    CHECK(served > 0);
}

}  // namespace weft::internal::test
