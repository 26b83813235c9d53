// without_ucx.cpp: for builds without UCX's headers.
#include "transports/ucx/ucx.hpp"

namespace weft::internal {

const Transport* ucx_transport() { return nullptr; }
Status ucx_trouble() { return ok(); }

}  // namespace weft::internal
