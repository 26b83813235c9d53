// position_test.cpp: a reader sees a call whole or not at all, whenever it looks.
#include "src/segment/position.hpp"

#include <thread>
#include <vector>

#include "tests/catch.hpp"

namespace weft::internal::test {
namespace {

// All fields follow from the number, so a mixture of two calls shows.
Operation operation_of(uint64_t sequence) {
    Operation operation;
    operation.collective = Collective::all_reduce;
    operation.type = uint8_t(sequence % weftNumTypes);
    operation.op = uint8_t(sequence % weftNumOps);
    operation.root = int32_t(sequence);
    operation.count = sequence * 0x9e3779b97f4a7c15u;
    operation.choice = ~sequence;
    return operation;
}

}  // namespace

TEST_CASE("before the first call a position is all zero", "[position]") {
    Position position{};
    const auto report = position.read();
    REQUIRE(report);
    CHECK(report->entered == 0);
    CHECK(report->finished == 0);
    CHECK(!report->inside());
    CHECK(report->operation == Operation{});
}

TEST_CASE("a position says which call a rank is in, and when it has left it", "[position]") {
    Position position{};
    position.enter(1, operation_of(1));
    CHECK(position.read()->inside());
    CHECK(position.read()->operation == operation_of(1));
    position.finish(1);
    CHECK(!position.read()->inside());
    CHECK(position.read()->finished == 1);
    position.enter(2, operation_of(2));
    CHECK(position.read()->entered == 2);
    CHECK(position.read()->finished == 1);
    CHECK(position.read()->operation == operation_of(2));
}

TEST_CASE("readers never see half of one call and half of another", "[position]") {
    Position position{};
    constexpr uint64_t calls = 200'000;
    std::atomic<bool> over{false};
    std::vector<uint64_t> seen(2), torn(2);
    std::vector<std::thread> readers;
    for (size_t i = 0; i < seen.size(); ++i)
        readers.emplace_back([&, i] {
            uint64_t last = 0;
            while (!over || seen[i] == 0) {
                const auto report = position.read();
                if (!report || report->entered == 0) continue;
                ++seen[i];
                torn[i] += !(report->operation == operation_of(report->entered)) ||
                           report->finished > report->entered || report->entered < last;
                last = report->entered;
            }
        });
    for (uint64_t sequence = 1; sequence <= calls; ++sequence) {
        position.enter(sequence, operation_of(sequence));
        position.finish(sequence);
    }
    over = true;
    for (std::thread& reader : readers) reader.join();
    CHECK(torn == std::vector<uint64_t>{0, 0});
}

}  // namespace weft::internal::test
