// Wrong schedules from tests/schedules/wrong/: each is refused, for the reason that its first line expects.
//
//     # expect: [its.id] the sentence, or a part of it
//
// It may also have options as `weft schedule check` takes them: # readable: 0,2   # board slots: 1   # fifo depth: 1
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "src/schedule/text.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

// The text that follows "# what: "; empty if there is none.
static std::string comment(const std::string& text, const std::string& what) {
    const size_t place = text.find("# " + what + ": ");
    if (place == text.npos) return {};
    const size_t first = place + what.size() + 4;
    return text.substr(first, text.find('\n', first) - first);
}

static Status check_text(const std::string& text) {
    auto schedules = read_texts(text);
    if (!schedules) return schedules.take_status();
    CheckOptions options;
    if (const std::string slots = comment(text, "board slots"); !slots.empty()) options.flag_slots = std::stoi(slots);
    if (const std::string depth = comment(text, "fifo depth"); !depth.empty()) options.fifo_depth = std::stoi(depth);
    DirectMode mode;
    if (const std::string readable = comment(text, "readable"); !readable.empty()) {
        mode.readable.assign(schedules->size(), false);
        std::istringstream ranks(readable);
        for (std::string rank; std::getline(ranks, rank, ',');) mode.readable.at(std::stoul(rank)) = true;
    }
    return check_set(*schedules, mode, options);
}

TEST_CASE("a wrong schedule is refused with place and reason", "[schedule]") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(WEFT_SCHEDULES) + "/wrong")) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const std::string expected = comment(text, "expect");
        const Status status = check_text(text);
        INFO(entry.path().string() << "\n" << status.sentence());
        CHECK(!expected.empty());
        CHECK_EXPECTED(status, expected);
        ++files;
    }
    CHECK(files >= 20);
}

TEST_CASE("a set of schedules must be complete", "[schedule]") {
    auto ring = [](int rank) { return registry::find_algorithm("ring")->build({.ranks = 2, .rank = rank}, {}); };
    CHECK_ERROR(check_set({}), "schedule.set");
    const Schedule one[] = {ring(0)};
    CHECK_ERROR(check_set(one), "schedule.set");
    const Schedule same[] = {ring(1), ring(1)};
    CHECK_ERROR(check_set(same), "schedule.set");
    const Schedule turned[] = {ring(1), ring(0)};
    CHECK(check_set(turned).ok());
}

TEST_CASE("a schedule too large to check is refused at once", "[schedule]") {
    CheckedOperation operation = operation_of({.algorithm = "ring"}, 4);
    operation.runs = 1 << 20;
    CHECK_ERROR(check(4, {&operation, 1}), "schedule.limit");
    operation.runs = 1;
    auto schedule = operation.schedule;
    operation.schedule = [=](int rank) {
        Schedule large = schedule(rank);
        large.chunks = 1 << 23;
        return large;
    };
    CHECK_ERROR(check(4, {&operation, 1}), "schedule.limit");
    operation.schedule = [=](int rank) {
        Schedule large = schedule(rank);
        for (Instruction& it : large.blocks[0].instructions) it.repeat = 1 << 24;
        return large;
    };
    operation.runs = 64;
    CHECK_ERROR(check(4, {&operation, 1}), "schedule.limit");
}

TEST_CASE("steps whose number leaves 64 bits are too many to check", "[schedule]") {
    CheckedOperation operation = operation_of({.algorithm = "ring"}, 1);
    operation.runs = 1 << 10;
    operation.schedule = [schedule = operation.schedule](int rank) {
        Schedule large = schedule(rank);
        large.chunks = 1 << 14;
        Instruction it = large.blocks[0].instructions[0];
        it.repeat = 1 << 24;
        it.count = 1 << 14;
        large.blocks[0].instructions.assign(1 << 16, it);  // 2^64 steps in all runs
        return large;
    };
    CHECK_ERROR(check(1, {&operation, 1}), "schedule.limit");
}

TEST_CASE("an operation may have a different schedule only where ranks agree on its header", "[schedule]") {
    CheckedOperation operation = operation_of({.algorithm = "ring"}, 3);
    auto schedule = operation.schedule;
    operation.schedule = [=](int rank) {
        Schedule other = schedule(rank);
        if (rank == 2) other.fifo_depth = 3;
        return other;
    };
    CHECK_ERROR(check(3, {&operation, 1}), "schedule.set");
    operation.schedule = [=](int rank) { return schedule(rank == 2 ? 1 : rank); };
    CHECK_ERROR(check(3, {&operation, 1}), "schedule.set");
    operation.schedule = [](int rank) {
        return registry::find_algorithm("two_shot")->build({.ranks = 3, .rank = rank}, {});
    };
    CHECK_ERROR(check(3, {&operation, 1}), "schedule.invalid");
}
