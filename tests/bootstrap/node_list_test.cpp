// node_list_test.cpp: Slurm's short forms of nodes and tasks, and texts that are none.
#include "src/launchers/node_list.hpp"

#include "tests/catch.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using Names = std::vector<std::string>;

TEST_CASE("a node list names every node, in order", "[node_list]") {
    CHECK(*parse_node_list("login1") == Names{"login1"});
    CHECK(*parse_node_list("a,b") == Names{"a", "b"});
    CHECK(*parse_node_list("gpu[01-03,7],login1") == Names{"gpu01", "gpu02", "gpu03", "gpu7", "login1"});
    CHECK(*parse_node_list("n[098-101]") == Names{"n098", "n099", "n100", "n101"});
    CHECK(*parse_node_list("n[8-11]") == Names{"n8", "n9", "n10", "n11"});
    CHECK(*parse_node_list("n[3]") == Names{"n3"});
    CHECK(*parse_node_list("n[0-1]-ib.cluster") == Names{"n0-ib.cluster", "n1-ib.cluster"});
    CHECK(*parse_node_list("rack[1-2]n[01-02]") == Names{"rack1n01", "rack1n02", "rack2n01", "rack2n02"});
    CHECK(parse_node_list("n[00000-99999]")->size() == 100'000);
}

TEST_CASE("a text that is no node list is an error", "[node_list]") {
    for (const char* text : {"",
                             ",",
                             "a,",
                             ",a",
                             "a,,b",
                             "n[",
                             "n]",
                             "n[]",
                             "n[1",
                             "n1]",
                             "n[1-]",
                             "n[-1]",
                             "n[3-1]",
                             "n[a-b]",
                             "n[1-2-3]",
                             "n[1,,2]",
                             "n[[1]]",
                             "n[1]]",
                             "n[+1-2]",
                             "n[ 1]",
                             "n[0-99999999]",
                             "n[0-99999999999999999999]",
                             "n[0-999999]m[0-999999]"}) {
        INFO(text);
        const auto nodes = parse_node_list(text);
        CHECK_ERROR(nodes, "launcher.variables");
        CHECK(nodes.status().sentence().rfind("`" + std::string(text) + "`", 0) == 0);
    }
}

TEST_CASE("a count of tasks is repeated by its factor", "[node_list]") {
    CHECK(*parse_task_counts("4") == std::vector<int>{4});
    CHECK(*parse_task_counts("4(x2),1") == std::vector<int>{4, 4, 1});
    CHECK(*parse_task_counts("1(x1),2,3(x3)") == std::vector<int>{1, 2, 3, 3, 3});
    CHECK(parse_task_counts("128(x10000)")->size() == 10'000);
}

TEST_CASE("a text that is no list of task counts is an error", "[node_list]") {
    for (const char* text : {"", ",", "4,", "0", "-1", "4(x0)", "4(x-1)", "4(x)", "4(x2", "4(2)", "(x2)", "4(x2)1",
                             "four", "4(x2)(x2)", "4(x99999999)", "99999999999", "4 (x2)"}) {
        INFO(text);
        const auto counts = parse_task_counts(text);
        CHECK_ERROR(counts, "launcher.variables");
        CHECK(counts.status().sentence().rfind("`" + std::string(text) + "`", 0) == 0);
    }
}
