#include "transports/verbs/settings.hpp"

#include <mutex>
#include <utility>

#include "src/base/log.hpp"
#include "src/base/options.hpp"

namespace weft::internal::verbs {

namespace {

struct Replaced {
    std::mutex mutex;
    std::optional<Settings> settings;
};
Replaced& replaced() {
    static Replaced of_tests;
    return of_tests;
}

// Leaked: threads that outlive main may still ask.
const Result<Settings>& of_options() {
    static const auto& made = *new Result<Settings>([]() -> Result<Settings> {
        Result<IbSettings> wanted = read_ib_settings(options());
        if (!wanted) return wanted.take_status();
        for (const std::string& warning : wanted->warnings) WEFT_LOG(warn, init, "{}", warning);
        Settings settings;
        static_cast<IbSettings&>(settings) = std::move(*wanted);
        settings.library = options().verbs_library;
        settings.rails = options().ib_rails;
        return settings;
    }());
    return made;
}

}  // namespace

Settings settings() {
    Replaced& of_tests = replaced();
    std::lock_guard lock(of_tests.mutex);
    if (of_tests.settings) return *of_tests.settings;
    if (of_options()) return *of_options();
    Settings none;
    none.disabled = true;
    return none;
}

Status settings_status() { return of_options() ? ok() : of_options().status().copy(); }

void set_settings(const Settings& settings) {
    Replaced& of_tests = replaced();
    std::lock_guard lock(of_tests.mutex);
    of_tests.settings = settings;
}

}  // namespace weft::internal::verbs
