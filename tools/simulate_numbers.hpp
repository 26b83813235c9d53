// simulate_numbers.hpp: the numbers in options of `weft schedule simulate`.
// The text of weftInvalidArgument names the accepted values.
#pragma once
#include <string>

#include "src/base/result.hpp"

namespace weft::internal::tools {

struct NamedNumber {
    std::string name;
    double value = 0;
};

// Parses NAME=VALUE; names may contain `=`.
Result<NamedNumber> named_number(const std::string& option, const std::string& text);
// A second becomes days. Larger factors would leave the range in which the simulator's times are exact.
inline constexpr double slowed_most = 1e6;

// Parses NAME=FACTOR, a slowdown from 1 to slowed_most.
Result<NamedNumber> slowed(const std::string& option, const std::string& text);
// Parses a number from 0 to count - 1.
Result<int> number_of(const std::string& option, const std::string& text, int count);

}  // namespace weft::internal::tools
