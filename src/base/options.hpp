// options.hpp: the user's settings from the environment, by the rows of options.def.
#pragma once
#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/environment.hpp"
#include "src/base/result.hpp"

namespace weft::internal {

enum class Origin : uint8_t { standard, environment, alias };

// The index of each option in option_rows() and Options::origins.
enum class OptionIndex : int {
#define WEFT_OPTION(name, type, standard, least, most, help) name,
#define WEFT_TEXT_OPTION(name, standard, help) name,
#define WEFT_SECRET_OPTION(name, standard, help) name,
#define WEFT_OPTION_ALIAS(name, variable)
#include "src/base/options.def"
#undef WEFT_OPTION
#undef WEFT_TEXT_OPTION
#undef WEFT_SECRET_OPTION
#undef WEFT_OPTION_ALIAS
    count
};

struct Options {
#define WEFT_OPTION(name, type, standard, least, most, help) type name = standard;
#define WEFT_TEXT_OPTION(name, standard, help) std::string name = standard;
#define WEFT_SECRET_OPTION(name, standard, help) std::string name = standard;
#define WEFT_OPTION_ALIAS(name, variable)
#include "src/base/options.def"
#undef WEFT_OPTION
#undef WEFT_TEXT_OPTION
#undef WEFT_SECRET_OPTION
#undef WEFT_OPTION_ALIAS

    Origin origins[int(OptionIndex::count)] = {};
    std::vector<std::string> warnings;  // sentences about variables that look like Weft's but do not exist
    const char* variables[int(OptionIndex::count)] = {};  // the variable that each option was read from; null: none
    Origin origin(OptionIndex option) const { return origins[int(option)]; }
    // The variable that the user has set, for sentences: an alias's name, or Weft's own.
    const char* variable(OptionIndex option) const;
};

// A row for `weft info` and the documentation.
struct OptionRow {
    const char* name;
    const char* variable;  // WEFT_TIMEOUT_MS
    std::vector<const char*> aliases;
    const char* type;      // "integer" or "text"
    std::string standard;  // the default as text
    int64_t least;         // of integers
    int64_t most;
    bool secret;  // the value is not to be shown
    const char* help;
};
// In the order of options.def. Thread-safe.
const std::vector<OptionRow>& option_rows();
// The option's value as text, secrets included.
std::string option_text(const Options& options, OptionIndex option);

// Reads the environment again. If a value is not a number or out of range, the result is weftInvalidArgument with a
// sentence for each.
// A misspelt name is only a warning, because it may belong to another version of Weft. A bad value of an alias is
// ignored with a warning, because it may be meant for NCCL alone. A Weft variable that is set but empty hides its
// aliases.
Result<Options> read_options();

// The process's options, read once at first use. A variable with a bad value keeps its default, and options_status() is
// a failure, which the creation of a communicator returns. Thread-safe.
const Options& options();
const Status& options_status();

// A whole decimal number; with_unit accepts a binary suffix K, M, G or T (64K is 65536). Reentrant.
Result<int64_t> parse_integer(const std::string& text, bool with_unit = false);

}  // namespace weft::internal
