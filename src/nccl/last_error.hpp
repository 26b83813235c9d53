// last_error.hpp: results of Weft's calls in NCCL's numbers, and the sentence that ncclGetLastError returns: this
// library's own, or Weft's.
#pragma once
#include <weft/weft.h>

#include <new>
#include <string>
#include <string_view>

#include "src/nccl/abi.h"

namespace weft::internal::nccl {

// Ends a call that Weft has carried out or refused. After an error Weft's sentence is this thread's newest.
ncclResult_t finish(weftResult_t result) noexcept;
// Ends a call that this library refuses: `sentence` is this thread's newest error.
ncclResult_t refuse(ncclResult_t code, const char* function, std::string_view sentence) noexcept;
ncclResult_t refuse_unsupported(const char* function, const char* remedy) noexcept;
// This thread has opened a group: from now on the group remembers its first call that fails.
void begin_group() noexcept;
// The thread has ended a group with `result`. Returns the failure of the first call of the outermost group, as NCCL does.
ncclResult_t end_group(ncclResult_t result) noexcept;
// Valid until this thread's next call of it.
const char* newest_error(ncclComm_t comm) noexcept;

// Runs a body that may allocate: no exception leaves the library.
template <class Body>
ncclResult_t guarded(const char* function, Body&& body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return refuse(ncclSystemError, function, "no memory is left");
    } catch (...) {
        return refuse(ncclInternalError, function, "an unknown exception was thrown: please report this");
    }
}

}  // namespace weft::internal::nccl
