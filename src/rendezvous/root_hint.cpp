#include "src/rendezvous/root_hint.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/options.hpp"

namespace weft::internal {

std::string root_variable(const std::string& root_host) {
    if (options().root_host == root_host) return "WEFT_ROOT_HOST";
    for (const char* variable : {"MASTER_ADDR", "SLURM_STEP_NODELIST"})
        if (environment(variable).value_or("").find(root_host) != std::string::npos) return variable;
    return "the name of rank 0's host";
}

std::string loopback_hint(const std::string& variable, const std::string& name,
                          const std::vector<net::Address>& addresses) {
    const auto leads_away = [](const net::Address& address) { return !address.is_loopback(); };
    if (addresses.empty() || std::any_of(addresses.begin(), addresses.end(), leads_away)) return {};
    const std::string address = addresses.front().with_port(0).text();
    return fmt::format(
        "; {} is {}, {} for itself: if ranks run on other hosts, set {} on all ranks to a name or address of rank 0's "
        "host that every host can reach",
        variable, name,
        address == name ? "an address that every host has"
                        : fmt::format("which is {} here, an address that every host has", address),
        variable.find(' ') == std::string::npos && variable != "SLURM_STEP_NODELIST" ? variable : "WEFT_ROOT_HOST");
}

}  // namespace weft::internal
