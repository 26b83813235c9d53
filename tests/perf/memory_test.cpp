// memory_test.cpp: the memory that limits a benchmark's buffers, and the number of ranks that share it.
#include "perf/memory.hpp"

#include "tests/catch.hpp"

using namespace perf;

namespace {

constexpr size_t gib = size_t(1) << 30;
const std::vector<std::string> two_hosts = {"one", "one", "two", "two"};

// Four ranks whose rooms are alike.
std::string lack(const std::vector<weft::internal::MemoryHeadroom>& rooms, size_t bytes, int rank = 0) {
    return memory_lack(rooms, bytes, rank, two_hosts, std::vector<std::string>(4, groups_text(rooms)));
}

}  // namespace

TEST_CASE("ranks of a host share its memory, and each needs its own buffers") {
    CHECK(lack({{0, 3 * gib}}, gib) == "");
    CHECK(lack({{0, 2 * gib}}, gib) != "");  // two ranks, and what Weft needs
    CHECK(lack({{0, 3 * gib}}, 2 * gib, 3) != "");
    CHECK(lack({}, 1000 * gib) == "");  // nothing is known
    CHECK(lack({{0, 0}}, gib) != "");
}

TEST_CASE("the limit of a control group counts for those that are in it") {
    CHECK(lack({{0, 100 * gib}, {77, 3 * gib}}, gib) == "");
    CHECK(lack({{0, 100 * gib}, {77, gib}}, gib) != "");
    // Each rank in a group of its own, all in one that is limited, too.
    const auto groups_of = [](uint64_t own) { return groups_text({{0, 100 * gib}, {own, 2 * gib}, {7, 3 * gib}}); };
    const std::vector<std::string> groups = {groups_of(1), groups_of(0x11), groups_of(2), groups_of(3)};
    CHECK(memory_lack({{0, 100 * gib}, {1, 2 * gib}, {7, 3 * gib}}, gib, 0, two_hosts, groups) == "");
    CHECK(memory_lack({{0, 100 * gib}, {1, 2 * gib}, {7, 2 * gib}}, gib, 0, two_hosts, groups) != "");
    CHECK(memory_lack({{0, 100 * gib}, {1, gib}, {7, 3 * gib}}, gib, 0, two_hosts, groups) != "");
}
