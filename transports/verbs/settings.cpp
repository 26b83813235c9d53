#include "transports/verbs/settings.hpp"

#include <mutex>

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

}  // namespace

Settings settings() {
    Replaced& of_tests = replaced();
    std::lock_guard lock(of_tests.mutex);
    if (of_tests.settings) return *of_tests.settings;
    Settings made;
    made.library = options().verbs_library;
    return made;
}

void set_settings(const Settings& settings) {
    Replaced& of_tests = replaced();
    std::lock_guard lock(of_tests.mutex);
    of_tests.settings = settings;
}

}  // namespace weft::internal::verbs
