#include "src/base/options.hpp"

#include <strings.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "src/base/edit_distance.hpp"
#include "src/base/service_variables.hpp"

namespace weft::internal {
namespace {

struct Reading {
    Options options;
    Status status;
};

// WEFT_TIMEOUT_MS for timeout_ms; leaked, so that it outlives every user.
const char* variable_of(const char* name) {
    std::string variable = std::string("WEFT_") + name;
    for (char& letter : variable) letter = char(std::toupper(static_cast<unsigned char>(letter)));
    return strdup(variable.c_str());
}

std::vector<OptionRow> make_rows() {
    std::vector<OptionRow> rows = {
#define WEFT_OPTION(name, type, standard, least, most, help) \
    {#name, variable_of(#name), {}, "integer", std::to_string(int64_t(standard)), least, most, false, help},
#define WEFT_TEXT_OPTION(name, standard, help) {#name, variable_of(#name), {}, "text", standard, 0, 0, false, help},
#define WEFT_SECRET_OPTION(name, standard, help) {#name, variable_of(#name), {}, "text", standard, 0, 0, true, help},
#define WEFT_OPTION_ALIAS(name, variable)
#include "src/base/options.def"
#undef WEFT_OPTION
#undef WEFT_TEXT_OPTION
#undef WEFT_SECRET_OPTION
#undef WEFT_OPTION_ALIAS
    };
#define WEFT_OPTION(name, type, standard, least, most, help)
#define WEFT_TEXT_OPTION(name, standard, help)
#define WEFT_SECRET_OPTION(name, standard, help)
#define WEFT_OPTION_ALIAS(name, variable) rows[size_t(OptionIndex::name)].aliases.push_back(#variable);
#include "src/base/options.def"
#undef WEFT_OPTION
#undef WEFT_TEXT_OPTION
#undef WEFT_SECRET_OPTION
#undef WEFT_OPTION_ALIAS
    return rows;
}

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// NCCL's and UCX's words for "choose", for numbers that Weft chooses if they are unset.
bool asks_for_default(std::string_view alias, std::string_view text) {
    return (alias.starts_with("UCX_") && text == "auto") || (alias == "NCCL_IB_GID_INDEX" && text == "-1");
}

// The user's setting of an option: its origin, and the text.
struct Setting {
    Origin origin = Origin::standard;
    const char* variable = nullptr;
    std::string text;
};

Setting find_setting(const OptionRow& row) {
    const auto text = environment(row.variable);
    const bool of_service = text && is_service_variable(row.variable, *text);
    if (text && !of_service) return {Origin::environment, row.variable, *text};
    // Set but empty: the option has its default, and its aliases are ignored.
    if (std::getenv(row.variable) != nullptr && !of_service) return {};
    for (const char* alias : row.aliases) {
        auto text = environment(alias);
        if (!text || asks_for_default(alias, *text)) continue;
        return {Origin::alias, alias, *text};
    }
    return {};
}

Result<int64_t> parse_setting(const OptionRow& row, const Setting& setting) {
    bool with_unit = ends_with(row.name, "_bytes");
    Result<int64_t> value = parse_integer(setting.text, with_unit);
    if (!value) return fail(error::option_value, "{}: {}", setting.variable, value.status().sentence());
    if (*value >= row.least && *value <= row.most) return value;
    std::string range = fmt::format("from {} to {}", row.least, row.most);
    // A limit of the type alone is not shown, unless it is the one that was exceeded.
    bool open_ended = row.most == INT64_MAX || row.most == INT_MAX;
    if (open_ended && *value < row.least) range = fmt::format("at least {}", row.least);
    if (open_ended && *value > row.most) range = fmt::format("at most {}", row.most);
    return fail(error::option_value, "{} is {}; it must be {}", setting.variable, *value, range);
}

// Words that an alias of a text option may have, each with Weft's word. An alias without a row has Weft's own words.
struct AliasWords {
    std::string_view variable;
    std::vector<std::pair<std::string_view, std::string_view>> words;
};

Result<std::string> text_of_alias(const Setting& setting) {
    static const auto& rows = *new std::vector<AliasWords>{
        {"NCCL_SOCKET_FAMILY", {{"AF_INET", "AF_INET"}, {"AF_INET6", "AF_INET6"}}},
        {"NCCL_P2P_DISABLE", {{"0", ""}, {"1", "host"}}},
        {"NCCL_IB_ADDR_FAMILY", {{"AF_INET", "AF_INET"}, {"AF_INET6", "AF_INET6"}}},
        {"NCCL_NET_GDR_LEVEL",
         {{"LOC", "LOC"},
          {"PIX", "PIX"},
          {"PXB", "PXB"},
          {"PHB", "PHB"},
          {"SYS", "SYS"},
          {"0", "LOC"},
          {"1", "PIX"},
          {"2", "PXB"},
          {"3", "PHB"},
          {"4", "SYS"}}},
    };
    for (const AliasWords& row : rows) {
        if (row.variable != setting.variable) continue;
        std::string expected;
        for (const auto& [word, of_weft] : row.words) {
            if (word == setting.text) return std::string(of_weft);
            expected += fmt::format("{}{}", expected.empty() ? "" : " or ", word);
        }
        return fail(error::option_value, "{} is {}; {} is expected", setting.variable, setting.text, expected);
    }
    return setting.text;
}

std::string unknown_name_sentence(const std::string& variable) {
    const auto& rows = option_rows();
    auto nearest = std::min_element(rows.begin(), rows.end(), [&](const OptionRow& one, const OptionRow& other) {
        return edit_distance(variable, one.variable) < edit_distance(variable, other.variable);
    });
    // If more than a third of the name is wrong, it is not a misspelling; WEFT_ itself is always right.
    size_t tolerated = std::max<size_t>(2, (variable.size() - strlen("WEFT_")) / 3);
    if (edit_distance(variable, nearest->variable) <= tolerated) {
        return fmt::format("{} is not an option; did you mean {}?", variable, nearest->variable);
    }
    return fmt::format("{} is not an option; `weft info` lists those that are", variable);
}

std::vector<std::string> find_unknown_names() {
    std::vector<std::string> sentences;
    for (const std::string& text : whole_environment()) {
        if (!text.starts_with("WEFT_") || text.starts_with("WEFT_TEST_")) continue;  // the latter belong to the tests
        const std::string variable = text.substr(0, text.find('='));
        if (is_service_variable(variable, std::string_view(text).substr(std::min(text.size(), variable.size() + 1))))
            continue;
        const auto& rows = option_rows();
        if (std::any_of(rows.begin(), rows.end(), [&](const OptionRow& row) { return variable == row.variable; }))
            continue;
        sentences.push_back(unknown_name_sentence(variable));
    }
    return sentences;
}

Reading read_environment() {
    Reading reading;
    Options& options = reading.options;
    const auto& rows = option_rows();
    std::string objections;
    auto take = [&](OptionIndex option, auto& field) {
        const OptionRow& row = rows[size_t(option)];
        Setting setting = find_setting(row);
        if (setting.origin == Origin::standard) return;
        const bool is_alias = setting.origin == Origin::alias;
        using Field = std::remove_reference_t<decltype(field)>;
        std::string objection;
        if constexpr (std::is_same_v<Field, std::string>) {
            Result<std::string> text = is_alias ? text_of_alias(setting) : setting.text;
            if (!text)
                objection = text.status().sentence();
            else
                field = std::move(*text);
        } else {
            Result<int64_t> value = parse_setting(row, setting);
            if (!value)
                objection = value.status().sentence();
            else
                field = Field(*value);
        }
        if (!objection.empty()) {
            if (is_alias)
                options.warnings.push_back(objection + ": it is left aside");
            else
                objections += (objections.empty() ? "" : "; ") + objection;
            return;
        }
        options.origins[int(option)] = setting.origin;
        options.variables[int(option)] = setting.variable;
    };
#define WEFT_OPTION(name, type, standard, least, most, help) take(OptionIndex::name, options.name);
#define WEFT_TEXT_OPTION(name, standard, help) take(OptionIndex::name, options.name);
#define WEFT_SECRET_OPTION(name, standard, help) take(OptionIndex::name, options.name);
#define WEFT_OPTION_ALIAS(name, variable)
#include "src/base/options.def"
#undef WEFT_OPTION
#undef WEFT_TEXT_OPTION
#undef WEFT_SECRET_OPTION
#undef WEFT_OPTION_ALIAS
    // The user expects the channels of that file. The other NCCL_ variables that Weft does not read only tune NCCL.
    if (environment("NCCL_GRAPH_FILE"))
        options.warnings.push_back(
            "NCCL_GRAPH_FILE is set, but Weft reads no graph file in a job: it makes its own channels from the "
            "topology");
    // With NCCL every rank calls ncclGetUniqueId then, and none sends its id.
    if (environment("NCCL_COMM_ID"))
        options.warnings.push_back(
            "NCCL_COMM_ID is set, but Weft does not read it: one rank makes the unique id and sends it to all others");
    for (std::string& sentence : find_unknown_names()) options.warnings.push_back(std::move(sentence));
    if (!objections.empty()) reading.status = Status(error::option_value, objections);
    return reading;
}

// Leaked: threads that outlive main may still ask.
const Reading& process_reading() {
    static const Reading& reading = *new Reading(read_environment());
    return reading;
}

std::string to_text(const std::string& value) { return value; }
std::string to_text(int64_t value) { return std::to_string(value); }

}  // namespace

const std::vector<OptionRow>& option_rows() {
    static const std::vector<OptionRow>& rows = *new std::vector<OptionRow>(make_rows());
    return rows;
}

const char* Options::variable(OptionIndex option) const {
    const char* read_from = variables[int(option)];
    return read_from ? read_from : option_rows()[size_t(option)].variable;
}

std::string option_text(const Options& options, OptionIndex option) {
    const std::string texts[] = {
#define WEFT_OPTION(name, type, standard, least, most, help) to_text(int64_t(options.name)),
#define WEFT_TEXT_OPTION(name, standard, help) to_text(options.name),
#define WEFT_SECRET_OPTION(name, standard, help) to_text(options.name),
#define WEFT_OPTION_ALIAS(name, variable)
#include "src/base/options.def"
#undef WEFT_OPTION
#undef WEFT_TEXT_OPTION
#undef WEFT_SECRET_OPTION
#undef WEFT_OPTION_ALIAS
    };
    return texts[int(option)];
}

Result<Options> read_options() {
    Reading reading = read_environment();
    if (!reading.status) return std::move(reading.status);
    return std::move(reading.options);
}

const Options& options() { return process_reading().options; }
const Status& options_status() { return process_reading().status; }

Result<int64_t> parse_integer(const std::string& text, bool with_unit) {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc::result_out_of_range) {
        return fail(error::option_value, "\"{}\" is too large; the limit is {}", text, INT64_MAX);
    }
    int shift = 0;
    if (error == std::errc() && with_unit && end - rest == 1) {
        const size_t unit = std::string_view("KMGT").find(char(std::toupper(static_cast<unsigned char>(*rest))));
        if (unit != std::string_view::npos) {
            shift = 10 * (int(unit) + 1);
            rest = end;
        }
    }
    if (error != std::errc() || rest != end) {
        return fail(error::option_value, "\"{}\" is not a whole number{}", text,
                    with_unit ? " (K, M, G or T may follow it)" : "");
    }
    if (value > INT64_MAX >> shift || value < INT64_MIN >> shift) {
        return fail(error::option_value, "\"{}\" is too large; the limit is {}", text, INT64_MAX);
    }
    return value * (int64_t(1) << shift);
}

}  // namespace weft::internal
