#include "src/launchers/node_list.hpp"

#include <algorithm>

#include "src/base/options.hpp"

namespace weft::internal {

namespace {

constexpr size_t nodes_most = 1'000'000;  // a longer list is damaged

// At commas outside of brackets. Empty pieces stay.
std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> pieces(1);
    int depth = 0;
    for (const char letter : text) {
        depth += (letter == '[') - (letter == ']');
        if (letter == ',' && depth == 0) {
            pieces.emplace_back();
        } else {
            pieces.back() += letter;
        }
    }
    return pieces;
}

// Digits only, no sign; otherwise -1.
int64_t plain_number(const std::string& text) {
    const bool digits =
        !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    const auto value = digits ? parse_integer(text) : Result<int64_t>(-1);
    return value ? *value : -1;
}

// "01-03" is 01 02 03, as wide as the first is written; "7" is 7.
bool expand_range(const std::string& range, std::vector<std::string>& numbers) {
    const size_t dash = range.find('-');
    const std::string begin = range.substr(0, dash), end = dash == std::string::npos ? begin : range.substr(dash + 1);
    const int64_t first = plain_number(begin), last = plain_number(end);
    if (first < 0 || last < first || size_t(last - first) >= nodes_most) return false;
    for (int64_t number = first; number <= last; ++number)
        numbers.push_back(fmt::format("{:0{}}", number, begin.size()));
    return true;
}

// One name with any number of brackets, such as "rack[1-2]n[01-02]": the last bracket changes fastest.
bool expand(const std::string& name, std::vector<std::string>& nodes) {
    const size_t open = name.find('['), close = name.find(']');
    if (open == std::string::npos) {
        if (name.empty() || close != std::string::npos) return false;
        nodes.push_back(name);
        return true;
    }
    if (close == std::string::npos || close < open || name.find('[', open + 1) < close) return false;
    std::vector<std::string> numbers, ends{""};
    for (const std::string& range : split(name.substr(open + 1, close - open - 1)))
        if (!expand_range(range, numbers) || numbers.size() > nodes_most) return false;
    if (const std::string rest = name.substr(close + 1); !rest.empty()) {
        ends.clear();
        if (!expand(rest, ends)) return false;
    }
    if (nodes.size() + numbers.size() * ends.size() > nodes_most) return false;
    for (const std::string& number : numbers)
        for (const std::string& end : ends) nodes.push_back(name.substr(0, open) + number + end);
    return true;
}

}  // namespace

Result<std::vector<std::string>> parse_node_list(const std::string& text) {
    std::vector<std::string> nodes;
    for (const std::string& name : split(text))
        if (!expand(name, nodes))
            return fail(error::launcher_variables, "`{}` is no list of nodes such as gpu[01-03,7],login1", text);
    return nodes;
}

Result<std::vector<int>> parse_task_counts(const std::string& text) {
    std::vector<int> counts;
    for (const std::string& piece : split(text)) {
        const size_t open = piece.find("(x");
        const bool repeated = open != std::string::npos && piece.back() == ')';
        const int64_t tasks = plain_number(piece.substr(0, open));
        const int64_t times = repeated ? plain_number(piece.substr(open + 2, piece.size() - open - 3))
                              : open == std::string::npos ? 1
                                                          : -1;
        if (tasks < 1 || tasks > INT_MAX || times < 1 || counts.size() + size_t(times) > nodes_most)
            return fail(error::launcher_variables, "`{}` is no list of task counts such as 4(x2),1", text);
        counts.insert(counts.end(), size_t(times), int(tasks));
    }
    return counts;
}

}  // namespace weft::internal
