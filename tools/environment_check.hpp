// environment_check.hpp: checks the options in the environment and reports errors as a program's communicators do.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/selector/catalog.hpp"

namespace weft::internal::tools {

// Messages, one sentence each.
struct EnvironmentCheck {
    std::vector<std::string> warnings;  // programs only get a warning
    std::vector<std::string> errors;    // creating a communicator fails
};

// `catalog`: the algorithms of WEFT_ALGO_FILES.
EnvironmentCheck check_environment(const Catalog& catalog);

}  // namespace weft::internal::tools
