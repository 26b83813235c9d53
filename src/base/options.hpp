// options.hpp: what the user set in the environment, from options.def. The only place of Weft that reads it.
#pragma once
#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal {

// The variable's value; none if it is unset or empty. Thread-safe as long as nobody calls setenv.
std::optional<std::string> environment(const char* variable);
// Every variable as NAME=VALUE, for what is passed on. Likewise.
std::vector<std::string> whole_environment();

enum class Origin : uint8_t { standard, environment, alias };

// The options' places in option_rows() and Options::origins.
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
    std::vector<std::string> warnings;                    // sentences on variables that look like Weft's and are not
    const char* variables[int(OptionIndex::count)] = {};  // that they were read from; null: from none
    Origin origin(OptionIndex option) const { return origins[int(option)]; }
    // The variable that the user has set, for sentences: an alias's name, or Weft's own.
    const char* variable(OptionIndex option) const;
};

// A row as `weft info` and the documentation need it.
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
// The option's value as text, secrets too.
std::string option_text(const Options& options, OptionIndex option);

// Reads the environment anew. A value that is no number or out of range is weftInvalidArgument with a sentence for
// each. A misspelt name is only a warning, for it may belong to another version of Weft; so is such a value of an alias,
// which may be meant for NCCL alone: it is left aside. A variable of Weft's that is set but empty hides its aliases.
Result<Options> read_options();

// The process's options, read once at first use; a variable with a bad value keeps its default, and options_status()
// says so: whoever makes a communicator returns it. Thread-safe.
const Options& options();
const Status& options_status();

// A whole decimal number; with_unit accepts a binary K, M, G or T behind it (64K is 65536). Reentrant.
Result<int64_t> parse_integer(const std::string& text, bool with_unit = false);

}  // namespace weft::internal
