#include "src/base/build_facts.hpp"

#include <fmt/core.h>
#include <weft/types.h>

#ifndef __has_feature
#define __has_feature(name) 0
#endif

namespace weft::internal {

std::string library_version() { return fmt::format("{}.{}.{}", WEFT_MAJOR, WEFT_MINOR, WEFT_PATCH); }

std::string library_compiler() {
#if defined(__clang__)
    return "Clang " __clang_version__;
#else
    return "GCC " __VERSION__;
#endif
}

std::vector<std::string> library_sanitizers() {
    std::vector<std::string> names;
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
    names.push_back("address");
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
    names.push_back("thread");
#endif
#if __has_feature(undefined_behavior_sanitizer)
    names.push_back("undefined");
#endif
    return names;
}

}  // namespace weft::internal
