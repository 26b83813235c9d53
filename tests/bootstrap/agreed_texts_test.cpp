// agreed_texts_test.cpp: agreed texts in the segment of a host.
#include "src/control/agreed_texts.hpp"

#include "tests/catch.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {

TEST_CASE("texts come back unchanged, and texts without room are unknown", "[texts]") {
    AgreedTexts texts;
    texts.tuning = std::string("a\0b", 3);
    texts.add_machine({"one", "rack"});
    texts.add_machine({""});
    texts.add_machine({"two", "rack"});
    texts.add_machine({"one"});
    texts.add_machine({std::string(AgreedTexts::machine_bytes_most + 1, 'x'), "another"});
    CHECK(texts.machines.size() == 2);
    texts.refusal = Failure(error::file_unreadable, "no file", {.rank = 3});
    const auto segment = Segment::create(3);
    REQUIRE(segment.ok());
    REQUIRE(texts.leave(**segment));
    const AgreedTexts read = AgreedTexts::of(**segment);
    CHECK(read.tuning == texts.tuning);
    CHECK(read.machines == texts.machines);
    CHECK(read.machine_of == std::vector<int32_t>{0, -1, 1, 0, -1});
    CHECK(read.machine(0) == MachineText{"one", "rack"});
    CHECK(read.machine(2) == MachineText{"two", "rack"});
    CHECK(read.machine(3) == MachineText{"one"});
    CHECK(read.machine(4) == MachineText{"", "another"});
    for (const int host : {-1, 1, 99}) CHECK(read.machine(host) == MachineText());
    REQUIRE(read.refusal);
    CHECK_ERROR(*read.refusal, "file.unreadable", 3);
    CHECK(read.refusal->sentence == "no file");
    // Thousands of hosts that are all different.
    AgreedTexts many;
    many.tuning = std::string(AgreedTexts::tuning_bytes_most, 't');
    for (int host = 0; host < 20'000; ++host)
        many.add_machine({std::to_string(host) + std::string(9'000, 'm'), std::to_string(host) + std::string(50, 'd')});
    CHECK(many.machine_of.size() == 20'000);
    CHECK(many.machines.size() > 40);
    CHECK(many.machine(19'999) == MachineText());
    CHECK(many.domains.size() == 4096);
    REQUIRE(many.leave(**segment));
    CHECK(AgreedTexts::of(**segment).machines == many.machines);
    CHECK_FALSE(AgreedTexts::of(**segment).refusal);
    many.tuning = std::string(AgreedTexts::bytes_most, 't');
    CHECK_FALSE(many.leave(**segment));
}

}  // namespace weft::internal::test
