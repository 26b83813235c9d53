// patience_test.cpp: a test with a time limit runs again only if the machine withheld the processor, and not for ever.
#include "tests/patience.hpp"

#include <sched.h>

#include <vector>

#include "tests/catch.hpp"
#include "tests/subprocess.hpp"

namespace weft::internal::test {
namespace {

template <int wakeup_ms, int queued_ms, int stolen_ms>
struct FakeWatch {
    Withheld end() { return {wakeup_ms, queued_ms, stolen_ms}; }
};

// The limits that were tried by an attempt that fails `failures` times.
template <class Watch>
std::vector<int64_t> limits_tried(int64_t first_ms, int failures, std::string* objection = nullptr) {
    std::vector<int64_t> limits;
    Retries counted(false);
    const std::string said = with_growing_limit<Watch>(
        first_ms,
        [&](int64_t limit_ms) {
            limits.push_back(limit_ms);
            return int(limits.size()) <= failures ? "wrong" : "";
        },
        counted);
    CHECK(counted.count() == int(limits.size()) - 1);
    if (objection) *objection = said;
    return limits;
}
constexpr int64_t first_ms = sanitized ? 200 : 100;

}  // namespace

TEST_CASE("an attempt that fails on an idle machine does not run again", "[patience]") {
    std::string objection;
    CHECK(limits_tried<FakeWatch<24, 24, 24>>(100, 1, &objection).size() == 1);
    CHECK(objection.rfind("wrong\nAfter 0 retries", 0) == 0);
}

TEST_CASE("each sign of an overloaded machine allows a retry with a longer limit", "[patience]") {
    const std::vector<int64_t> expected{first_ms, 4 * first_ms};
    std::string objection;
    CHECK(limits_tried<FakeWatch<5000, 0, 0>>(100, 1, &objection) == expected);
    CHECK(objection == "");
    CHECK(limits_tried<FakeWatch<0, 5000, 0>>(100, 1) == expected);
    CHECK(limits_tried<FakeWatch<0, 0, 5000>>(100, 1) == expected);
}

TEST_CASE("an attempt that always fails ends after three retries, or at the longest limit", "[patience]") {
    using Overloaded = FakeWatch<90'000, 0, 0>;
    CHECK(limits_tried<Overloaded>(100, 100).size() == 4);
    CHECK(limits_tried<Overloaded>(5000, 100).back() == 20'000);
}

TEST_CASE("the run-queue delay of an ended process is read", "[patience]") {
    LoadWatch watch;
    most_queued_us = 0;
    // Two busy processes on one core: each waits for the other.
    cpu_set_t allowed, one;
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    CPU_ZERO(&one);
    for (int core = 0; CPU_COUNT(&one) == 0; ++core)
        if (CPU_ISSET(core, &allowed)) CPU_SET(core, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    const std::vector<std::string> busy{"sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done"};
    Subprocess process(busy), other(busy);
    REQUIRE(sched_setaffinity(0, sizeof allowed, &allowed) == 0);
    note_queued(process.pid());
    process.wait();
    other.wait();
    const Withheld withheld = watch.end();
    CHECK(withheld.wakeup_ms >= 0);
    if (std::ifstream("/proc/self/schedstat")) CHECK(most_queued_us > 0);
    CHECK(withheld.text().find("run-queue delay") != std::string::npos);
}

}  // namespace weft::internal::test
