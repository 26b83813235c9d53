// Reports of gradients and full buckets, without communication.
#include "src/train/reports.hpp"

#include "src/train/agreement.hpp"
#include "src/train/model.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using namespace weft::internal::train;

TEST_CASE("a gradient is complete after one report, and a second one is an error that changes nothing") {
    Reports reports(3, false);
    reports.begin();
    CHECK(reports.report(2, "c").ok());
    CHECK(reports.complete(2));
    const Status twice = reports.report(2, "c");
    CHECK_ERROR(twice, "train.reported-twice");
    CHECK(twice.sentence().find("\"c\"") != std::string::npos);
    CHECK(reports.missing() == std::vector<int>{0, 1});
    CHECK(reports.report(0, "a").ok());
    CHECK(reports.order() == std::vector<int>{2, 0, 1});
    reports.begin();
    CHECK(reports.missing() == std::vector<int>{0, 1, 2});
    CHECK(reports.used(2));
    reports.clear_used();
    CHECK_FALSE(reports.used(2));
}

TEST_CASE("a static graph records how often each gradient is reported") {
    Reports reports(3, true);
    reports.begin();
    for (const int parameter : {0, 1, 0}) CHECK(reports.report(parameter, "x").ok());
    CHECK(reports.recording());
    CHECK_FALSE(reports.complete(0));
    CHECK(reports.order() == std::vector<int>{1, 0, 2});
    reports.end_recording();
    reports.begin();
    CHECK(reports.report(0, "a").ok());
    CHECK_FALSE(reports.complete(0));
    CHECK(reports.missing() == std::vector<int>{0, 1});
    CHECK(reports.report(0, "a").ok());
    CHECK(reports.complete(0));
    CHECK_ERROR(reports.report(0, "a"), "train.reported-twice");
    CHECK_ERROR(reports.report(2, "c"), "train.static-graph");
}

TEST_CASE("buckets are taken in the order of their index only") {
    const std::vector<TensorFacts> tensors(4, {weftFloat32, 1});
    const BucketLayout layout = lay_out(tensors, {{3, 2}, {1}, {0}});
    FullBuckets full;
    full.begin(layout);
    full.ready(1);
    full.ready(3);
    CHECK(full.take() == -1);
    full.ready(2);
    CHECK(full.take() == 0);
    CHECK(full.take() == 1);
    CHECK(full.take() == -1);
    full.ready(0);
    CHECK(full.is_ready(0));
    CHECK(full.take() == 2);
    CHECK(full.take() == -1);
}

TEST_CASE("the first difference of two models is a line of each") {
    Model left;
    left.parameters = {{"w", nullptr, nullptr, {weftFloat32, 10}}, {"b", nullptr, nullptr, {weftFloat32, 2}}};
    Model right = left;
    right.parameters[1].name = "bias";
    const auto [one, other] = first_difference(described(left), described(right));
    CHECK(one == "parameter 1, \"b\", with 2 elements of float");
    CHECK(other == "parameter 1, \"bias\", with 2 elements of float");
    right.parameters.pop_back();
    CHECK(first_difference(described(left), described(right)).right == "nothing more");
    right = left;
    right.settings.join = true;
    CHECK(first_difference(described(left), described(right)).right.find("join 1") != std::string::npos);
    // A name that begins with the other one.
    right = left;
    right.parameters[1].facts.count = 20;
    CHECK(first_difference(described(left), described(right)).left == one);
}
