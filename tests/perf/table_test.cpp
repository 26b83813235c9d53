// table_test.cpp: lines look like nccl-tests', so that scripts which read those read ours.
#include "perf/table.hpp"

#include "tests/catch.hpp"

using namespace perf;
using Catch::Contains;

namespace {

Arguments arguments_of(std::vector<const char*> words) {
    words.insert(words.begin(), "all_reduce_perf");
    return std::get<Arguments>(parse_arguments("all_reduce_perf", int(words.size()), words.data()));
}

Row a_row() {
    Result result;
    result.measurement.time_us = 1234567.8;
    result.algorithm_bandwidth = 12.345;
    result.bus_bandwidth = 18.5;
    result.wrong = 0;
    return {1048576, 262144, find_element("float"), find_reduction("sum"), -1, result, result, "ring", "shm"};
}

const Collective collective = {.served_by = "Weft",
                               .program = "all_reduce_perf",
                               .bench_name = "allreduce",
                               .parted = false,
                               .rooted = false,
                               .reduces = true,
                               .sends = Holds::all_parts,
                               .receives = Holds::all_parts,
                               .bus_factor = nullptr,
                               .run = nullptr};

}  // namespace

TEST_CASE("the head says which sizes run, and of how many GPUs") {
    const auto head = [](std::vector<const char*> words) {
        return preamble_text(collective, arguments_of(std::move(words)), {});
    };
    CHECK_THAT(head({}), Contains("# nThread 1 nGpus 0 minBytes 33554432 maxBytes 33554432 step: 1048576(bytes)"));
    CHECK_THAT(head({"-b", "8", "-e", "100", "-f", "2"}), Contains(" minBytes 8 maxBytes 100 step: 2(factor)"));
    CHECK_THAT(head({"--sizes", "4K,8,64K,16"}), Contains(" minBytes 8 maxBytes 65536 "));
    CHECK_THAT(head({"-t", "2", "-g", "3"}), Contains("# nThread 2 nGpus 3 "));
}

TEST_CASE("a line has nccl-tests' columns, to the character") {
    CHECK(row_text(arguments_of({}), a_row()) ==
          "     1048576        262144     float     sum      -1"
          "  1234568   12.35   18.50       0  1234568   12.35   18.50       0\n");
}

TEST_CASE("numbers too long for a column lose digits, not their meaning") {
    Row row = a_row();
    row.out_of_place.measurement.time_us = 123456789;
    row.out_of_place.algorithm_bandwidth = 1234567;
    CHECK_THAT(row_text(arguments_of({}), row), Contains("  1.2e+08   1e+06   18.50  "));
}

TEST_CASE("unchecked results are not reported as right") {
    Row row = a_row();
    row.in_place->wrong.reset();
    CHECK_THAT(row_text(arguments_of({}), row), Contains("   18.50     N/A\n"));
}

TEST_CASE("where there is no call in place, its columns say so and stay in place") {
    Row row = a_row();
    row.in_place.reset();
    const std::string line = row_text(arguments_of({}), row);
    CHECK_THAT(line, Contains("  1234568   12.35   18.50       0      N/A     N/A     N/A     N/A\n"));
    CHECK(line.size() == row_text(arguments_of({}), a_row()).size());
    const Arguments spread = arguments_of({"-I", "1", "-n", "4"});
    Row full = a_row();
    full.out_of_place.measurement.iterations_us = full.in_place->measurement.iterations_us = {4, 1, 2, 3};
    row.out_of_place = full.out_of_place;
    CHECK(row_text(spread, row).size() == row_text(spread, full).size());
}

TEST_CASE("columns on request stand under their headings") {
    const Arguments arguments = arguments_of({"--show", "algo", "-S", "1", "-I", "1", "-n", "4"});
    Row row = a_row();
    row.out_of_place.measurement.iterations_us = row.in_place->measurement.iterations_us = {4, 1, 2, 3};
    const std::string header = header_text(collective, arguments, {this_place(nullptr)}),
                      line = row_text(arguments, row);
    const size_t names = header.find("#       size");
    REQUIRE(names != std::string::npos);
    const std::string heading = header.substr(names, header.find('\n', names) - names);
    CHECK(heading.size() + 1 == line.size());
    CHECK(heading.find("algorithm") + 9 == line.find("ring") + 4);
    CHECK(heading.find("i_max") + 5 == line.find("4.00") + 4);
}

TEST_CASE("the footer says OK only without a wrong element") {
    CHECK_THAT(footer_text(collective, 0, 1.5, {}),
               Contains("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.5 \n"));
    CHECK_THAT(footer_text(collective, 3, 1.5, {}), Contains("# Out of bounds values : 3 FAILED\n"));
}

TEST_CASE("where a rank runs survives its journey to rank 0") {
    const RankPlace place{42, "host-1", 3, "0-3,8", "Some Processor (R) 2.0"};
    const RankPlace arrived = place_from(text_of(place));
    CHECK(arrived.pid == 42);
    CHECK(arrived.host == "host-1");
    CHECK(arrived.device == 3);
    CHECK(arrived.cpus == "0-3,8");
    CHECK(arrived.model == "Some Processor (R) 2.0");
}

TEST_CASE("the spread of iterations is by the nearest rank") {
    std::vector<double> times;
    for (int i = 200; i >= 1; --i) times.push_back(i);
    const Spread spread = spread_of(times);
    CHECK(spread.least == 1);
    CHECK(spread.most == 200);
    CHECK(spread.p99 == 198);
    CHECK(spread.variation_percent == Approx(57.4).margin(0.1));
}
