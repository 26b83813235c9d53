// environment.hpp: the environment's variables as text. Only options.hpp, the launchers and the tools read them.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace weft::internal {

// The variable's value; none if it is unset or empty. Thread-safe as long as no thread calls setenv.
std::optional<std::string> environment(const char* variable);
// Every variable as NAME=VALUE, to pass to a child process. Likewise.
std::vector<std::string> whole_environment();

}  // namespace weft::internal
