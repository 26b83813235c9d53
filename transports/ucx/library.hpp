// library.hpp: UCX as it is on this machine: libucp, found at run time, and the process's context.
#pragma once
#include <ucp/api/ucp.h>

#include <string>

#include "src/base/result.hpp"

namespace weft::internal::ucx {

struct Library {
#define WEFT_UCX_FUNCTION(name) decltype(&::name) name = nullptr;
#include "transports/ucx/functions.def"
#undef WEFT_UCX_FUNCTION
    ucp_context_h context = nullptr;

    std::string text(ucs_status_t status) const { return ucs_status_string(status); }
};

// Of this process, with the context; made at the first call and never destroyed. Thread-safe. ucx.unusable: libucp is
// missing or too old, or UCX_TLS or UCX_NET_DEVICES leaves it no transport.
const Result<Library>& library_of_process();

}  // namespace weft::internal::ucx
