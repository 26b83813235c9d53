#include "src/base/log.hpp"

#include <fcntl.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/cancellation.hpp"
#include "src/base/fd.hpp"
#include "src/base/service_variables.hpp"

namespace weft::internal {
namespace {

struct CategoryRow {
    const char* name;
    LogCategory category;
    bool shown;
};
const CategoryRow category_rows[] = {
#define WEFT_LOG_CATEGORY(name, shown, help) {#name, LogCategory::name, shown},
#include "src/base/log_category.def"
#undef WEFT_LOG_CATEGORY
};
const char* const level_names[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};

std::string upper(std::string text) {
    for (char& letter : text) letter = char(toupper(static_cast<unsigned char>(letter)));
    return text;
}

// As NCCL prints it: the name up to its first dot.
std::string host_name() {
    char name[256] = "";
    if (gethostname(name, sizeof name - 1) != 0) return "localhost";
    return std::string(name, strcspn(name, "."));
}

std::string expand_file_name(const std::string& pattern) {
    std::string name;
    for (size_t i = 0; i < pattern.size(); ++i) {
        char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
        switch (next) {
            case 'h': name += host_name(); break;
            case 'p': name += std::to_string(getpid()); break;
            case '%': name += '%'; break;
            default: name += pattern[i]; continue;
        }
        ++i;
    }
    return name;
}

LogLevel parse_level(const Options& options, std::vector<std::string>& warnings) {
    for (int level = 0; level <= int(LogLevel::trace); ++level) {
        if (strcasecmp(options.debug.c_str(), level_names[level]) == 0) return LogLevel(level);
    }
    // NCCL's variable may have a level (ABORT) that Weft lacks: no warning.
    if (options.origin(OptionIndex::debug) != Origin::alias || strcasecmp(options.debug.c_str(), "abort") != 0) {
        warnings.push_back(
            fmt::format("{} is {}, which is not a level; use NONE, VERSION, WARN, INFO or TRACE. "
                        "WARN is taken",
                        options.variable(OptionIndex::debug), options.debug));
    }
    return LogLevel::warn;
}

// NCCL's variable may have categories that Weft lacks: no warning.
bool is_category_of_nccl(const std::string& word) {
    for (const char* name : {"init", "coll", "p2p", "shm", "net", "graph", "tuning", "env", "alloc", "call", "proxy",
                             "nvls", "bootstrap", "reg", "profile", "ras"})
        if (strcasecmp(word.c_str(), name) == 0) return true;
    return false;
}

uint32_t parse_categories(const Options& options, std::vector<std::string>& warnings) {
    uint32_t mask = 0;
    const std::string& list = options.debug_subsys;
    if (list.empty()) {
        for (const CategoryRow& row : category_rows) mask |= row.shown ? uint32_t(row.category) : 0;
        return mask;
    }
    // A list that begins with an exclusion starts from all categories.
    if (list[0] == '^') mask = uint32_t(LogCategory::all);
    for (size_t begin = 0; begin <= list.size();) {
        size_t end = std::min(list.find(',', begin), list.size());
        std::string word = list.substr(begin, end - begin);
        begin = end + 1;
        bool removed = !word.empty() && word[0] == '^';
        if (removed) word.erase(0, 1);
        if (word.empty()) continue;
        uint32_t bits = strcasecmp(word.c_str(), "all") == 0 ? uint32_t(LogCategory::all) : 0;
        for (const CategoryRow& row : category_rows) {
            if (strcasecmp(word.c_str(), row.name) == 0) bits = uint32_t(row.category);
        }
        const bool is_alias = options.origin(OptionIndex::debug_subsys) == Origin::alias;
        if (bits == 0 && !(is_alias && is_category_of_nccl(word))) {
            std::string known;
            for (const CategoryRow& row : category_rows) known += upper(row.name) + ", ";
            warnings.push_back(fmt::format("{} names {}, which is not a category; there are {}ALL",
                                           options.variable(OptionIndex::debug_subsys), word, known));
        }
        mask = removed ? mask & ~bits : mask | bits;
    }
    return mask;
}

void write_all(int fd, const std::string& text) {
    for (size_t written = 0; written < text.size();) {
        ssize_t count = write(fd, text.data() + written, text.size() - written);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return;  // the failure cannot be reported anywhere
        written += size_t(count);
    }
}

std::string format_lines(LogLevel level, std::optional<int> rank, const std::string& text) {
    std::string prefix = fmt::format("{}:{}:{} ", host_name(), getpid(), syscall(SYS_gettid));
    if (rank) prefix += fmt::format("[{}] ", *rank);
    prefix += fmt::format("WEFT {} ", level_names[int(level)]);
    std::string lines;
    for (size_t begin = 0; begin <= text.size();) {
        size_t end = std::min(text.find('\n', begin), text.size());
        if (begin < end || begin == 0) lines += prefix + text.substr(begin, end - begin) + "\n";
        begin = end + 1;
    }
    return lines;
}

// The process's log: its settings, and the open file. Never destroyed: threads that outlive main may still log.
struct Log {
    LogSettings settings;
    Fd file;  // none: stderr

    // Writes complete lines. The program may have closed the file and reused its number for a file of its own.
    void write(const std::string& lines) const {
        if (!file || file.intact()) return write_all(file ? file.number() : STDERR_FILENO, lines);
        if (const Fd again = open_again()) write_all(again.number(), lines);
    }

    explicit Log(const Options& options) : settings(make_log_settings(options)) {
        if (!settings.file.empty()) open_file();
        warn(options.warnings);
        warn(settings.warnings);
        if (settings.wants(LogLevel::info, LogCategory::env)) tell_service_variables();
    }

  private:
    // Appends, because several ranks may name one file.
    Fd open_again() const { return Fd::open(settings.file, O_WRONLY | O_CREAT | O_APPEND); }
    void open_file() {
        file = open_again();
        if (!file) {
            settings.warnings.push_back(
                fmt::format("cannot write the log to {}: {}; stderr is used", settings.file, errno_text(errno)));
        }
    }
    void tell_service_variables() const {
        std::string names;
        for (const std::string& name : service_variables()) names += (names.empty() ? "" : ", ") + name;
        if (names.empty()) return;
        write(format_lines(LogLevel::info, {},
                           fmt::format("{}: of a service of Kubernetes, not options; ignored", names)));
    }
    void warn(const std::vector<std::string>& sentences) const {
        if (!settings.wants(LogLevel::warn, LogCategory::env)) return;
        for (const std::string& sentence : sentences) write(format_lines(LogLevel::warn, {}, sentence));
    }
};

const Log& process_log() {
    static const Log& log = *new Log(options());
    return log;
}

}  // namespace

LogSettings make_log_settings(const Options& options) {
    LogSettings settings;
    settings.file = expand_file_name(options.debug_file);
    uint32_t categories = parse_categories(options, settings.warnings);
    // By default only warnings are shown; at level WARN also the version, as in NCCL.
    bool asked = !options.debug.empty();
    LogLevel level = asked ? parse_level(options, settings.warnings) : LogLevel::warn;
    auto up_to = [&](LogLevel line) { return line <= level; };
    if (asked && up_to(LogLevel::version)) settings.masks[int(LogLevel::version)] = uint32_t(LogCategory::all);
    if (up_to(LogLevel::warn)) settings.masks[int(LogLevel::warn)] = uint32_t(LogCategory::all);
    if (up_to(LogLevel::info)) settings.masks[int(LogLevel::info)] = categories;
    if (up_to(LogLevel::trace)) settings.masks[int(LogLevel::trace)] = categories;
    return settings;
}

const LogSettings& log_settings() { return process_log().settings; }

void write_log(LogLevel level, std::optional<int> rank, const std::string& text) {
    const CancelHeld held;
    const Log& log = process_log();
    if (const uint64_t limit = Fd::take_raised_limit();
        limit != 0 && log.settings.wants(LogLevel::info, LogCategory::env))
        log.write(format_lines(LogLevel::info, {},
                               fmt::format("no descriptor was left: the soft limit (ulimit -n) was raised to {}; "
                                           "WEFT_RAISE_NOFILE=0 forbids that",
                                           limit)));
    log.write(format_lines(level, rank, text));
}

}  // namespace weft::internal
