// checked_runs.hpp: calls one behind the other on the same ranks, each result held against the interpreter's.
#pragma once
#include "tests/catch.hpp"
#include "tests/executor/local_ranks.hpp"

namespace weft::internal::test {

inline void check(LocalRanks& ranks, const std::vector<Call>& calls, Driver driver, std::mt19937& random) {
    const auto results = ranks.run(calls, driver, random);
    for (size_t i = 0; i < calls.size(); ++i) {
        CAPTURE(i);
        if (const auto wrong = difference(calls[i], results[i], expected(calls[i]))) FAIL_CHECK(*wrong);
    }
}

}  // namespace weft::internal::test
