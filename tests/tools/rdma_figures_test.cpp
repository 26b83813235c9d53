// rdma_figures_test.cpp: a run of `weft rdma-check` shows its own figures only.
#include "tools/rdma_figures.hpp"

#include "tests/catch.hpp"

using weft::internal::tools::RdmaFigures;

TEST_CASE("a figure that a run lacks is not that of the run before", "[rdma-check]") {
    RdmaFigures figures;
    for (const double value : {3.0, 1.0}) {
        figures.begin_run();
        figures.add("latency_us", value);
        figures.add("ib_send_lat", value + 1);
    }
    CHECK(figures.run_text() == " ib_send_lat 2, latency_us 1");
    figures.begin_run();
    figures.add("latency_us", 2);
    CHECK(figures.run_text() == " latency_us 2");
    CHECK(figures.median_of("latency_us") == 2);
    CHECK(figures.lack_text("latency_us") == "");
    CHECK(figures.median_of("ib_send_lat") == 4);
    CHECK(figures.runs_with("ib_send_lat") == 2);
    CHECK(figures.lack_text("ib_send_lat") == ", 2 of 3 runs");
    CHECK(figures.median_of("ib_write_bw") == 0);
    CHECK(figures.lack_text("ib_write_bw") == "");
}
