// log.hpp: lines for the user, tested before they are formatted: WEFT_LOG(info, init, "{} ranks joined", ranks).
// A line is `host:pid:tid [rank] WEFT INFO text`, one write(2) each, to stderr or WEFT_DEBUG_FILE. A text has no `=`.
// Warnings of every category are shown by default; WEFT_DEBUG and WEFT_DEBUG_SUBSYS select the rest.
#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/options.hpp"

namespace weft::internal {

enum class LogLevel : uint8_t { none, version, warn, info, trace };

// Bits, so that a setting is a mask of them.
enum class LogCategory : uint32_t {
#define WEFT_LOG_CATEGORY(name, shown, help) name##_place,
#include "src/base/log_category.def"
#undef WEFT_LOG_CATEGORY
#define WEFT_LOG_CATEGORY(name, shown, help) name = 1u << name##_place,
#include "src/base/log_category.def"
#undef WEFT_LOG_CATEGORY
    all = ~0u
};

// The lines that are enabled. A value; log_settings() returns the process's.
struct LogSettings {
    uint32_t masks[int(LogLevel::trace) + 1] = {};  // categories shown, by level
    std::string file;                               // with %h and %p replaced; empty is stderr
    std::vector<std::string> warnings;              // sentences about levels and categories that do not exist
    bool wants(LogLevel level, LogCategory category) const { return (masks[int(level)] & uint32_t(category)) != 0; }
};
LogSettings make_log_settings(const Options& options);

// Read from options() at first use; the warnings about options are logged then, too. Thread-safe.
const LogSettings& log_settings();
// Appends one line (with a prefix for each if the text has several). It takes no lock, so a child after fork may log as
// well: it writes to its parent's file, under its own pid. Thread-safe.
void write_log(LogLevel level, std::optional<int> rank, const std::string& text);

}  // namespace weft::internal

#define WEFT_LOG(level, category, ...) WEFT_LOG_AS(std::nullopt, level, category, __VA_ARGS__)
// The same with a rank's prefix.
#define WEFT_LOG_RANK(rank, level, category, ...) WEFT_LOG_AS(int(rank), level, category, __VA_ARGS__)
#define WEFT_LOG_AS(rank, level, category, ...)                                                               \
    do {                                                                                                      \
        if (::weft::internal::log_settings().wants(::weft::internal::LogLevel::level,                         \
                                                   ::weft::internal::LogCategory::category)) [[unlikely]]     \
            ::weft::internal::write_log(::weft::internal::LogLevel::level, rank, ::fmt::format(__VA_ARGS__)); \
    } while (0)
