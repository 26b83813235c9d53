// returned_errors.hpp: records an error that Weft returns, because the process may end because of it.
// Before the return, the error is written into the rows of all ranks of the process, on all its communicators
// (segment/returned_error.hpp). Then other ranks report this error, not the end of the process, as the cause.
#pragma once
#include <memory>

#include "src/rendezvous/host_rendezvous.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// Lists a rank of this process as a member of a communicator until it leaves. Thread-safe.
class ReturnedErrorScope {
  public:
    ReturnedErrorScope(std::shared_ptr<Segment> group, std::shared_ptr<Membership> membership, int rank);
    ~ReturnedErrorScope();
    ReturnedErrorScope(const ReturnedErrorScope&) = delete;
    ReturnedErrorScope& operator=(const ReturnedErrorScope&) = delete;

  private:
    uint64_t process_, number_;
};

// Records a failure that is not a wrong call, and any on communicators that have died. Returns when all other hosts will
// receive the failure before the end of this process, or after a second. Thread-safe.
void record_returned_error(const Status& failure);

}  // namespace weft::internal
