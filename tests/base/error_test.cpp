// error_test.cpp: the table of errors, and how ids and facts go with a failure.
#include <set>

#include "src/base/operation.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

TEST_CASE("every error has an id of its own, a code, and a sentence for each text", "[error]") {
    std::set<std::string> ids;
    for (const ErrorRow& row : error_rows()) {
        INFO(row.id);
        CHECK(ids.insert(row.id).second);
        CHECK(std::string(row.id).find('.') != std::string::npos);
        CHECK((row.code > weftSuccess && row.code < weftNumResults));
        for (const std::string text : {row.meaning, row.causes, row.remedy})
            CHECK((!text.empty() && text.back() == '.'));
        REQUIRE(error_named(row.id));
        CHECK(&row_of(*error_named(row.id)) == &row);
    }
    CHECK(row_of(error::none).id == std::string());
    CHECK_FALSE(error_named(""));
    CHECK_FALSE(error_named("mismatch"));
}

TEST_CASE("a failure has its id's code, and its text ends with the id once", "[error]") {
    const Status failure =
        fail(error::mismatch_count, "rank {} called {}", 1, "all_reduce").about({.rank = 1, .peer = 0});
    CHECK(failure.code() == weftMismatch);
    CHECK_ERROR(failure, "mismatch.count", 1, 0);
    CHECK(failure.text() == "rank 1 called all_reduce [mismatch.count]");
    CHECK(id_in(failure.text()) == "mismatch.count");
    const Status wrapped = fail(failure, "call 3 of the group: {}", failure.sentence());
    CHECK_ERROR(wrapped, "mismatch.count", 1, 0);
    CHECK(wrapped.text() == "call 3 of the group: rank 1 called all_reduce [mismatch.count]");
    CHECK_ERROR(wrapped.copy(), "mismatch.count", 1, 0);
    CHECK(ok().copy().ok());
    CHECK(ok().text().empty());
}

TEST_CASE("a misspelt or shortened id is answered with ids near it", "[error]") {
    CHECK(ids_near("mismatch.cuont").front() == "mismatch.count");
    for (const std::string& id : ids_near("timeout")) CHECK(id.find("timeout") != std::string::npos);
    CHECK(ids_near("timeout").size() > 2);
    CHECK_FALSE(ids_near("").empty());
}

TEST_CASE("two calls that do not fit have the id of their first difference", "[error]") {
    Operation one{.collective = Collective::all_reduce, .type = weftInt32, .op = weftSum, .count = 8};
    const auto between = [&](auto change) {
        Operation other = one;
        change(other);
        CHECK(mismatch_between(one, other) == mismatch_between(other, one));
        CHECK(fingerprint(one) != fingerprint(other));
        return std::string(row_of(mismatch_between(one, other)).id);
    };
    CHECK(between([](Operation& other) { other.collective = Collective::broadcast; }) == "mismatch.call");
    CHECK(between([](Operation& other) { other.space = Space::device; }) == "mismatch.call");
    CHECK(between([](Operation& other) { other.purpose = Purpose::split; }) == "mismatch.call");
    CHECK(between([](Operation& other) { other.root = 1; }) == "mismatch.root");
    CHECK(between([](Operation& other) { other.type = weftFloat32; }) == "mismatch.datatype");
    CHECK(between([](Operation& other) { other.op = weftMax; }) == "mismatch.reduction");
    CHECK(between([](Operation& other) { other.count = 9; }) == "mismatch.count");
    CHECK(between([](Operation& other) { other.choice = 1; }) == "mismatch.algorithm");
}
