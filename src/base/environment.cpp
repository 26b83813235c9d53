#include "src/base/environment.hpp"

#include <unistd.h>

#include <cstdlib>

namespace weft::internal {

std::optional<std::string> environment(const char* variable) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') return {};
    return std::string(value);
}

std::vector<std::string> whole_environment() {
    std::vector<std::string> variables;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) variables.push_back(*entry);
    return variables;
}

}  // namespace weft::internal
