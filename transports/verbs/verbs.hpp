// verbs.hpp: RDMA between hosts, over libibverbs.
#pragma once
#include "transports/transport.hpp"

namespace weft::internal {

const Transport& verbs_transport();

}  // namespace weft::internal
