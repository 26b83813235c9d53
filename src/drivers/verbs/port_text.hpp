// port_text.hpp: the meaning of the numbers in a port's attributes. Pure functions.
#pragma once
#include <string>

#include "src/drivers/verbs/layout.hpp"

namespace weft::internal::verbs {

// The speed of all lanes together in Mb/s, -1: the struct does not have it, as from XDR on.
int lanes_mbps(const abi::PortAttributes& port);
// "ACTIVE"
std::string port_state_text(int state);
// Of the state: the port carries traffic.
bool is_active(int state);

}  // namespace weft::internal::verbs
