// verbs.hpp: RDMA between hosts, over libibverbs.
#pragma once
#include "transports/transport.hpp"

namespace weft::internal {

const Transport& verbs_transport();
// The fault in the user's options for RDMA on this host: option.value, option.names, option.conflict. A host
// without RDMA is no error. Opens the devices. Thread-safe.
Status verbs_trouble();

}  // namespace weft::internal
