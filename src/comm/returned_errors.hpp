// returned_errors.hpp: a process may end because of an error that it was returned. Before the return, the error is written
// into the rows of all ranks of the process, on all its communicators (segment/returned_error.hpp). Then other ranks do not report the
// end of this process as the cause.
#pragma once
#include <memory>

#include "src/rendezvous/host_rendezvous.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// That a rank of this process is in a communicator, until it leaves. Thread-safe.
class ReturnedErrorScope {
  public:
    ReturnedErrorScope(std::shared_ptr<Segment> group, std::shared_ptr<Membership> membership, int rank);
    ~ReturnedErrorScope();
    ReturnedErrorScope(const ReturnedErrorScope&) = delete;
    ReturnedErrorScope& operator=(const ReturnedErrorScope&) = delete;

  private:
    uint64_t process_, number_;
};

// Tells of a failure that is the world's, not of a wrong call. Returns when all ranks of other hosts are sure to learn
// it before the end of this process, or after a second. Thread-safe.
void record_returned_error(const Status& failure);

}  // namespace weft::internal
