// failure_record.hpp: the first error of a communicator, in the segment of each host.
#pragma once
#include <string_view>

#include "src/base/result.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// A view of SegmentHeader::abort, made where it is needed: the segment must outlive it. Thread-safe. The record is
// written once and never cleared. Segment::aborted() is the test of a waiting rank.
class FailureRecord {
  public:
    explicit FailureRecord(Segment& segment) : segment_(&segment) {}

    // Records the first error and wakes all ranks. False if another error was first.
    // `rank`: the reporting rank, -1 if unknown. Allocates nothing.
    bool raise(ErrorId error, int rank, std::string_view sentence, const FailureFacts& facts = {}) const;
    bool raise(const Failure& failure, int rank) const {
        return raise(failure.id, rank, failure.sentence, failure.facts);
    }
    bool raise(const Status& failure, int rank) const { return raise(failure.failure(), rank); }
    // The recorded error; waits briefly if it is just being written.
    Status status() const;

  private:
    Segment* segment_;
};

}  // namespace weft::internal
