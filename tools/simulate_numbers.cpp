#include "tools/simulate_numbers.hpp"

#include <charconv>
#include <cmath>

namespace weft::internal::tools {

Result<NamedNumber> named_number(const std::string& option, const std::string& text) {
    const size_t sign = text.rfind('=');
    NamedNumber found{text.substr(0, sign)};
    const char* const end = text.data() + text.size();
    const char* const begin = sign == std::string::npos ? end : text.data() + sign + 1;
    const auto [behind, error] = std::from_chars(begin, end, found.value);
    if (error != std::errc() || behind != end || !std::isfinite(found.value))
        return fail(error::command_option, "{} takes a name and a number, as in {}=2", option, found.name);
    return found;
}

Result<NamedNumber> slowed(const std::string& option, const std::string& text) {
    auto found = named_number(option, text);
    if (found && (found->value < 1 || found->value > slowed_most))
        return fail(error::command_option, "{} takes a factor from 1 to {:.0f} by which it is slower, as in {}=2",
                    option, slowed_most, found->name);
    return found;
}

Result<int> number_of(const std::string& option, const std::string& text, int count) {
    int number = -1;
    const auto [behind, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || behind != text.data() + text.size() || number < 0 || number >= count)
        return fail(error::command_option, "{}: `{}` is not a number from 0 to {}", option, text, count - 1);
    return number;
}

}  // namespace weft::internal::tools
