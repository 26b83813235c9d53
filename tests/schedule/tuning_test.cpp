// tuning_test.cpp: files of `weft tune`: reading, writing, errors in broken ones, and their effect on predictions and
// choices. The times are made up.
#include "src/selector/tuning.hpp"

#include <cmath>
#include <fstream>

#include "src/registry.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/logarithm.hpp"
#include "src/selector/selector.hpp"
#include "src/selector/tuning_file.hpp"
#include "src/selector/tuning_text.hpp"
#include "tests/catch.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {

namespace {

using Catch::Contains;

Tuning::Curve curve_of(const char* algorithm, int ranks, int hosts, std::vector<Tuning::Point> points) {
    return {Collective::all_reduce, algorithm, ranks, hosts, std::move(points)};
}

// Of four ranks on a host, where a ring is fast for long messages, and of two hosts.
Tuning a_tuning() {
    Tuning tuning = tuning_of_here();
    tuning.cores = 4;
    tuning.uses_cma = true;
    tuning.constants = tuning.built_in();
    tuning.curves = {curve_of("one_shot", 4, 1, {{8, 1}, {512, 2}, {65536, 100}}),
                     curve_of("ring", 4, 1, {{8, 10}, {512, 11}, {65536, 20}}),
                     curve_of("recursive_doubling", 2, 2, {{8, 30}, {65536, 300}})};
    return tuning;
}

Costs costs_of(Tuning tuning, int ranks, int hosts = 1) {
    const LinkCosts links = tuning.links_here(ranks, hosts);
    return Costs(links, std::make_shared<const Tuning>(std::move(tuning)));
}

Prediction prediction(const Costs& costs, const char* algorithm, int ranks, size_t bytes, int hosts = 1) {
    return predict(*registry::find_algorithm(algorithm, Collective::all_reduce), layout_in_blocks(ranks, hosts), costs,
                   bytes);
}

Operation all_reduce_of(size_t bytes) {
    Operation operation;
    operation.collective = Collective::all_reduce;
    operation.type = weftUint8;
    operation.op = weftSum;
    operation.count = bytes;
    return operation;
}

std::string chosen(const Costs& costs, size_t bytes, const Preferences& preferences = {}, int rank = 0) {
    const auto choice =
        select(all_reduce_of(bytes), layout_in_blocks(4, 1, rank), costs, preferences, registry::algorithms());
    return choice ? choice->algorithm->name : choice.status().sentence();
}

// With one text in place of another, which must be there.
std::string changed(const std::string& from, const std::string& to) {
    std::string text = tuning_text(a_tuning());
    const size_t place = text.find(from);
    REQUIRE(place != std::string::npos);
    return text.replace(place, from.size(), to);
}

std::string objection(const std::string& text) {
    const auto tuning = read_tuning(text);
    return tuning ? "" : tuning.status().sentence();
}

}  // namespace

TEST_CASE("a tuning survives its text", "[tuning]") {
    Tuning tuning = a_tuning();
    tuning.processor = "a \"quoted\" processor";
    tuning.constants.signal_us = 0.25;
    tuning.link_mbps = 25'000;
    const auto read = read_tuning(tuning_text(tuning));
    REQUIRE(read);
    CHECK(tuning_text(*read) == tuning_text(tuning));
    CHECK(read->processor == tuning.processor);
    CHECK(read->constants.signal_us == 0.25);
    CHECK(read->link_mbps == 25'000);
    REQUIRE(read->curves.size() == 3);
    CHECK(read->curves[2].hosts == 2);
    CHECK(read->curves[2].points[1].bytes == 65536);
    CHECK(read->curves[2].points[1].us == 300);
    // The name of a file may be anything.
    tuning.simulated = "\xff.xml";
    const auto replaced = read_tuning(tuning_text(tuning));
    REQUIRE(replaced);
    CHECK(replaced->simulated == "\uFFFD.xml");
}

TEST_CASE("a text that is no tuning is refused with the fault and its place", "[tuning]") {
    CHECK(objection(tuning_text(a_tuning())) == "");
    CHECK_THAT(objection(""), Contains("not JSON"));
    CHECK_THAT(objection("[]"), Contains("not JSON"));
    CHECK_THAT(objection("{}"), Contains("`weft_tune` is missing"));
    CHECK_THAT(objection(changed("\"weft_tune\": 1", "\"weft_tune\": 2")),
               Contains("format 2") && Contains("reads format 1"));
    CHECK_THAT(objection(changed("\"weft_tune\": 1", "\"weft_tune\": \"one\"")), Contains("not a whole number"));
    CHECK_THAT(objection(changed("\"cores_used\":4", "\"cores_used\":0")), Contains("`cores_used` is 0, not 1 to"));
    CHECK_THAT(objection(changed("\"signal_us\"", "\"signal\"")), Contains("`signal_us` is missing"));
    CHECK_THAT(objection(changed("\"collective\":\"all_reduce\"", "\"collective\":\"all\"")),
               Contains("times[0]: `all` is no collective"));
    CHECK_THAT(objection(changed("\"hosts\":2", "\"hosts\":3")), Contains("times[2]: `hosts` is 3, not 1 to 2"));
    CHECK_THAT(objection(changed("[512,2.0]", "[512]")), Contains("pairs of bytes"));
    CHECK_THAT(objection(changed("[512,2.0]", "[8,2.0]")), Contains("8 bytes do not follow"));
    CHECK_THAT(objection(changed("[512,2.0]", "[-1,2.0]")), Contains("-1 bytes do not follow"));
    CHECK_THAT(objection(changed("[512,2.0]", "[1e300,2.0]")), Contains("pairs of bytes"));
    CHECK_THAT(objection(changed("[512,2.0]", "[512,0]")), Contains("which no time can be"));
    CHECK_THAT(objection(changed("[512,2.0]", "[512,1e999]")), Contains("not JSON"));
    CHECK_THAT(objection(changed("[[8,30.0],[65536,300.0]]", "[]")), Contains("`us` is empty"));
    CHECK_THAT(objection(changed("{\"collective\":\"all_reduce\",\"ranks\":2", "7, {\"x\":1,\"ranks\":2")),
               Contains("times[2]: it is not an object"));
}

TEST_CASE("ignored parts of a tuning are noted", "[tuning]") {
    Tuning tuning = tuning_of_here();
    tuning.curves = {{Collective::all_reduce, "ring", 2, 1, {{8, 1}}},
                     {Collective::all_reduce, "ring", 4, 1, {{8, 1}}},
                     {Collective::all_reduce, "ring", 2, 1, {{8, 9}}}};
    std::string text = tuning_text(tuning);
    const std::string constants = "\"constants\": {";
    text.insert(text.find(constants) + constants.size(), "\"alhpa_us\": 1,");
    const auto read = read_tuning(text);
    REQUIRE(read);
    CHECK(read->notes == std::vector<std::string>{"there is no constant \"alhpa_us\": it counts for nothing",
                                                  "times[2] are of what times[0] are of, all_reduce by ring of 2 ranks "
                                                  "on 1 hosts: the first count"});
    CHECK(read->nearest(Collective::all_reduce, "ring", layout_in_blocks(2, 1))->points[0].us == 1);
    tuning.curves.pop_back();
    CHECK(read_tuning(tuning_text(tuning))->notes.empty());
}

TEST_CASE("a tuning that is cut off anywhere is refused", "[tuning]") {
    const std::string whole = tuning_text(a_tuning());
    const size_t end = whole.rfind('}');
    for (size_t length = 0; length <= end; ++length) {
        INFO(length);
        CHECK(objection(whole.substr(0, length)) != "");
    }
}

TEST_CASE("between two sizes times lie on a straight line of logarithms", "[tuning]") {
    const Costs costs = costs_of(a_tuning(), 4);
    CHECK(prediction(costs, "one_shot", 4, 8).us == Approx(1));
    CHECK(prediction(costs, "one_shot", 4, 64).us == Approx(std::sqrt(2)));
    CHECK(prediction(costs, "one_shot", 4, 512).us == Approx(2));
    CHECK(prediction(costs, "one_shot", 4, 512).basis == Basis::measured);
    // Nothing is known below the first.
    CHECK(prediction(costs, "one_shot", 4, 0).basis == Basis::scaled);
}

TEST_CASE("beyond the measured sizes the model continues from the last of them", "[tuning]") {
    const Costs costs = costs_of(a_tuning(), 4);
    const Algorithm& ring = *registry::find_algorithm("ring", Collective::all_reduce);
    const double model = ring.predicted_us(layout_in_blocks(4, 1), costs.links, 1 << 20) /
                         ring.predicted_us(layout_in_blocks(4, 1), costs.links, 65536);
    const Prediction far = prediction(costs, "ring", 4, 1 << 20);
    CHECK(far.us == Approx(20 * model));
    CHECK(far.basis == Basis::scaled);
}

TEST_CASE("predictions for other numbers of ranks are the model's, corrected by the nearest measured number",
          "[tuning]") {
    Tuning tuning = a_tuning();
    const Algorithm& ring = *registry::find_algorithm("ring", Collective::all_reduce);
    const double correction =
        11 / ring.predicted_us(layout_in_blocks(4, 1), link_costs_in_blocks(4, 1, 1, 4, 0, true), 512);
    REQUIRE(correction > 1 / 8.0);
    REQUIRE(correction < 8);
    const Costs eight = costs_of(tuning, 8);
    CHECK(prediction(eight, "ring", 8, 512).us ==
          Approx(correction * ring.predicted_us(layout_in_blocks(8, 1), eight.links, 512)));
    CHECK(prediction(eight, "ring", 8, 512).basis == Basis::scaled);
    // An absurd measurement decides nothing elsewhere.
    tuning.curves[1].points[1].us = 1e9;
    CHECK(prediction(costs_of(tuning, 8), "ring", 8, 512).us ==
          Approx(8 * ring.predicted_us(layout_in_blocks(8, 1), eight.links, 512)));
    CHECK(prediction(costs_of(tuning, 4), "ring", 4, 512).us == Approx(1e9));
    // The nearest of two.
    tuning.curves.push_back(curve_of("ring", 16, 1, {{8, 1000}, {65536, 1000}}));
    CHECK(tuning.nearest(Collective::all_reduce, "ring", layout_in_blocks(5, 1))->ranks == 4);
    CHECK(tuning.nearest(Collective::all_reduce, "ring", layout_in_blocks(12, 1))->ranks == 16);
}

TEST_CASE("times of one arrangement say nothing of another kind", "[tuning]") {
    const Costs built_in(a_tuning().links_here(4, 4));
    // One host of four was measured, and two hosts of one.
    CHECK(prediction(costs_of(a_tuning(), 4, 4), "ring", 4, 512, 4).us == prediction(built_in, "ring", 4, 512, 4).us);
    CHECK(prediction(costs_of(a_tuning(), 4, 4), "recursive_doubling", 4, 512, 4).basis == Basis::scaled);
    CHECK(prediction(costs_of(a_tuning(), 4, 2), "recursive_doubling", 4, 512, 2).basis == Basis::model);
    CHECK(prediction(costs_of(a_tuning(), 4), "recursive_doubling", 4, 512).basis == Basis::model);
    // Of a faster network than the measured one.
    const Costs faster(network_link_costs(1, 100'000), std::make_shared<const Tuning>(a_tuning()));
    CHECK(prediction(faster, "recursive_doubling", 2, 512, 2).basis == Basis::model);
    CHECK(prediction(costs_of(a_tuning(), 2, 2), "recursive_doubling", 2, 8, 2).us == Approx(30));
}

TEST_CASE("a curve of ranks that its algorithm cannot serve counts for nothing", "[tuning]") {
    Tuning tuning = a_tuning();
    tuning.curves = {curve_of("all_pairs", 1000, 1, {{8, 1}})};
    CHECK(prediction(costs_of(tuning, 4), "all_pairs", 4, 8).basis == Basis::model);
}

TEST_CASE("the measured times choose, the same on every rank, and rules still bind", "[tuning]") {
    const Costs costs = costs_of(a_tuning(), 4);
    // All others have the costs of the model; these two are made the best.
    Preferences two;
    two.algo = "one_shot,ring";
    CHECK(chosen(costs, 8, two) == "one_shot");
    CHECK(chosen(costs, 65536, two) == "ring");
    CHECK(chosen(costs, 65536, {"one_shot", 0}) == "one_shot");
    for (size_t bytes = 8; bytes <= 1 << 24; bytes *= 2)
        for (int rank = 1; rank < 4; ++rank) CHECK(chosen(costs, bytes, {}, rank) == chosen(costs, bytes));
    const std::string text = explain(all_reduce_of(512), layout_in_blocks(4, 1), costs, two, registry::algorithms());
    CHECK_THAT(text, Contains("candidate one_shot: 2.00 us measured;") && Contains("candidate two_shot: ") &&
                         Contains("chosen: one_shot over shm, least time that was measured"));
    CHECK_THAT(choice_text(all_reduce_of(512), layout_in_blocks(4, 1),
                           *select(all_reduce_of(512), layout_in_blocks(4, 1), costs, two, registry::algorithms()),
                           candidates(all_reduce_of(512), layout_in_blocks(4, 1), costs, two, registry::algorithms())),
               Contains("all_reduce of 512 uint8, sum (512 bytes) on 4 ranks: one_shot over shm, 2.00 us measured"));
}

TEST_CASE("constants that were fitted are the model's, those of the network if it is the same", "[tuning]") {
    Tuning tuning = a_tuning();
    tuning.constants.signal_us = 7;
    tuning.constants.net_latency_us = 70;
    // Machines with unknown network speed are not among the measured ones.
    CHECK(tuning.fitted(network_link_costs(3, 0)).net_latency_us == LinkCosts{}.net_latency_us);
    const LinkCosts same = tuning.fitted(network_link_costs(3, 0, true, true));
    CHECK(same.signal_us == Approx(7));
    CHECK(same.net_latency_us == Approx(70));
    CHECK(same.ranks_per_core == 3);
    const LinkCosts other = tuning.fitted(network_link_costs(3, 10'000, true, true));
    CHECK(other.signal_us == Approx(7));
    CHECK(other.net_latency_us == LinkCosts{}.net_latency_us);
    CHECK(other.net_us_per_byte == 8.0 / 10'000);
}

TEST_CASE("predictions of a tuning are for the tiles that run, with any constants", "[tuning]") {
    Tuning tuning = a_tuning();
    tuning.constants.signal_us *= 15;
    tuning.constants.net_latency_us *= 9;
    tuning.constants.cached_us_per_byte /= 7;
    tuning.constants.net_us_per_byte /= 5;
    int rows = 0;
    for (const Algorithm& row : registry::algorithms()) {
        if (!row.tile_bytes) continue;
        for (const int hosts : {1, 2, 8}) {
            const Layout layout = layout_in_blocks(8, hosts);
            if (row.refusal(layout)) continue;
            const LinkCosts links = tuning.links_here(8, hosts);
            CAPTURE(row.name, name_of(row.collective), hosts);
            for (const size_t bytes : {100'000, 10'000'000})
                CHECK(row.tile_bytes(layout, tuning.fitted(links), bytes) == row.tile_bytes(layout, links, bytes));
            ++rows;
        }
    }
    CHECK(rows > 5);
}

TEST_CASE("a tuning knows how far cores are apart if ranks on them shared memory", "[tuning]") {
    Tuning tuning = a_tuning();
    CHECK(tuning.of_shared_memory());
    tuning.curves = {curve_of("ring", 4, 4, {{8, 1}})};
    CHECK_FALSE(tuning.of_shared_memory());
    tuning.curves.push_back(curve_of("two_level_ring", 4, 2, {{8, 1}}));
    CHECK(tuning.of_shared_memory());
}

TEST_CASE("times of ranks with another placement on NUMA domains are left out", "[tuning]") {
    Tuning tuning = a_tuning();
    tuning.constants.signal_us = 7;
    tuning.constants.net_latency_us = 70;
    // Unknown, as in older files: believed.
    for (const bool apart : {false, true}) CHECK_FALSE(tuning.has_other_placement(apart));
    for (Tuning::Curve& curve : tuning.curves)
        if (curve.hosts == 1) curve.apart = false;
    const auto read = read_tuning(tuning_text(tuning));
    REQUIRE(read);
    CHECK(read->curves[0].apart == std::optional(false));
    CHECK_FALSE(read->curves[2].apart);
    CHECK_THAT(objection(changed("\"algorithm\":\"ring\"", "\"algorithm\":\"ring\",\"apart\":1")),
               Contains("times[1]: `apart` is not true or false"));
    CHECK_FALSE(tuning.has_other_placement(false));
    CHECK(tuning.has_other_placement(true));
    const Tuning left = tuning.with_placement(true);
    REQUIRE(left.curves.size() == 1);
    CHECK(left.curves[0].hosts == 2);
    CHECK_FALSE(left.of_shared_memory());
    CHECK(left.constants.signal_us == left.built_in().signal_us);
    CHECK(left.constants.net_latency_us == 70);
    CHECK(prediction(costs_of(left, 4), "ring", 4, 512).us ==
          prediction(Costs(left.links_here(4, 1)), "ring", 4, 512).us);
    // Some of each.
    tuning.curves[1].apart = true;
    const Tuning some = tuning.with_placement(true);
    CHECK(some.curves.size() == 2);
    CHECK(some.constants.signal_us == 7);
    CHECK(prediction(costs_of(some, 4), "ring", 4, 512).us == Approx(11));
}

TEST_CASE("logarithms are the same bits on every machine", "[tuning]") {
    for (double number = 1e-9; number < 1e18; number *= 1.37) {
        CAPTURE(number);
        CHECK(logarithm(number) == Approx(std::log(number)).epsilon(1e-14).margin(1e-15));
        CHECK(exponential(logarithm(number)) == Approx(number).epsilon(1e-13));
    }
    CHECK(logarithm(1) == 0);
    CHECK(exponential(0) == 1);
    CHECK(logarithm(10) == 0x1.26bb1bbb55515p+1);
    CHECK(logarithm(48271) == 0x1.591b549d067c9p+3);
    CHECK(exponential(1) == 0x1.5bf0a8b14576ap+1);
    CHECK(exponential(-7.3) == 0x1.622d4792b6a8dp-11);
}

TEST_CASE("a tuning's file is used on the machine and by the version that measured it", "[tuning]") {
    const Folder folder;
    const std::string name = folder.path / "tune.json";
    const auto of_text = [&](const std::string& text) {
        std::ofstream(name) << text;
        return tuning_of_file(name);
    };
    const auto own = of_text(tuning_text(a_tuning()));
    REQUIRE(own);
    REQUIRE(*own);
    CHECK((*own)->curves.size() == 3);
    CHECK(*tuning_of_file(name) == *own);
    CHECK_FALSE(*tuning_of_file(""));
    CHECK_FALSE(*tuning_of_file("none"));
}

TEST_CASE("a file of another machine or version is left aside", "[tuning]") {
    const Folder folder;
    int number = 0;
    const auto used = [&](const Tuning& tuning) {
        const std::string name = folder.path / std::to_string(++number);
        std::ofstream(name) << tuning_text(tuning);
        const auto read = tuning_of_file(name);
        REQUIRE(read);
        return *read != nullptr;
    };
    CHECK(used(a_tuning()));
    Tuning other = a_tuning();
    other.processor += "+";
    CHECK_FALSE(used(other));
    other = a_tuning();
    ++other.machine_cores;
    CHECK_FALSE(used(other));
    other = a_tuning();
    other.version = "0.0.1";
    CHECK_FALSE(used(other));
}

TEST_CASE("a missing or wrong file is an error with a remedy", "[tuning]") {
    const Folder folder;
    const std::string name = folder.path / "tune.json";
    const auto missing = tuning_of_file(name);
    REQUIRE_FALSE(missing);
    CHECK_THAT(missing.status().sentence(), Contains("WEFT_TUNE_FILE: ") && Contains("could not be read"));
    std::ofstream(name) << tuning_text(a_tuning()).substr(0, 300);
    const auto broken = tuning_of_file(name);
    REQUIRE_FALSE(broken);
    CHECK(broken.status().code() == weftInvalidUsage);
    CHECK_THAT(broken.status().sentence(), Contains("cut off") && Contains("make it with `weft tune -o " + name));
}

}  // namespace weft::internal::test
