// environment_check.hpp: what is wrong with the options that the environment sets, as communicators of a program would say it.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/selector/catalog.hpp"

namespace weft::internal::tools {

// Sentences.
struct EnvironmentCheck {
    std::vector<std::string> warnings;  // what programs are only warned of
    std::vector<std::string> errors;    // what makes a communicator fail
};

// `catalog`: as WEFT_ALGO_FILES has it.
EnvironmentCheck check_environment(const Catalog& catalog);

}  // namespace weft::internal::tools
