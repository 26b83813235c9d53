// simulate_numbers.hpp: numbers as the options of `weft schedule simulate` have them. weftInvalidArgument: what the option
// takes.
#pragma once
#include <string>

#include "src/base/result.hpp"

namespace weft::internal::tools {

struct NamedNumber {
    std::string name;
    double value = 0;
};

// Of NAME=VALUE; names may have that sign in them.
Result<NamedNumber> named_number(const std::string& option, const std::string& text);
// The same, so many times as slow.
Result<NamedNumber> slowed(const std::string& option, const std::string& text);
// Of 0 to count - 1.
Result<int> number_of(const std::string& option, const std::string& text, int count);

}  // namespace weft::internal::tools
