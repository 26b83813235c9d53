// root_hint.hpp: the part of an error message about the name of rank 0's host.
#pragma once
#include <string>
#include <vector>

#include "src/net/address.hpp"

namespace weft::internal {

// The variable that gives this name of rank 0's host. Error messages name it.
std::string root_variable(const std::string& root_host);
// If all addresses of rank 0's host are loopback addresses (127.0.1.1 from /etc/hosts), each host reaches itself.
// Returns the end of an error message about that. Empty if an address may lead to another host.
std::string loopback_hint(const std::string& variable, const std::string& name,
                          const std::vector<net::Address>& addresses);

}  // namespace weft::internal
