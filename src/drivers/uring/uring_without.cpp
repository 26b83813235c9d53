// uring_without.cpp: the function of uring.hpp in a build without liburing's header: it fails.
#include "src/drivers/uring/uring.hpp"

namespace weft::internal::uring {

Result<std::unique_ptr<Ring>> make_ring(unsigned) {
    return fail(error::driver_disabled,
                "this build of Weft cannot use io_uring: liburing.h was not found when it was built, or "
                "-Dliburing=disabled");
}

}  // namespace weft::internal::uring
