// ucx.hpp: connections over UCX, if the user names it in WEFT_TRANSPORTS.
#pragma once
#include "transports/transport.hpp"

namespace weft::internal {

// Null: Weft was built without UCX's headers.
const Transport* ucx_transport();
// Why UCX cannot be used although the user names it. ucx.unusable.
Status ucx_trouble();

}  // namespace weft::internal
