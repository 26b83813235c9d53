// shm.hpp: the shared-memory transport's row.
#pragma once
#include "transports/transport.hpp"

namespace weft::internal {
const Transport& shm_transport();
}
