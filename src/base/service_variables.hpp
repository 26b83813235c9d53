// service_variables.hpp: variables that this process has from Kubernetes, not from a user. A pod gets some for each
// service of its namespace, named after the service: WEFT_ROOT_PORT=tcp://10.0.0.1:80 is of a service weft-root.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace weft::internal {

// Reentrant.
bool is_service_variable(std::string_view name, std::string_view value);
// Those in the environment that begin with WEFT_. Thread-safe as long as no thread calls setenv.
std::vector<std::string> service_variables();

}  // namespace weft::internal
