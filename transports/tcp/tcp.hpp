// tcp.hpp: connections over TCP, between any two ranks that know the communicator's secret.
#pragma once
#include "transports/transport.hpp"

namespace weft::internal {

const Transport& tcp_transport();

}  // namespace weft::internal
