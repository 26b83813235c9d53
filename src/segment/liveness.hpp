// liveness.hpp: whether the processes of a communicator's ranks live, run, and ended after a failure.
#pragma once
#include <cstdint>

#include "src/base/result.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// A view, made where it is needed: the segment must outlive it. Thread-safe. A rank's process holds a lock on the byte
// of the segment's file whose offset is the rank, from claim() until it ends.
class Liveness {
  public:
    explicit Liveness(const Segment& segment) : segment_(&segment) {}

    // Whether the rank's process lives, by a lock that the kernel drops when the process ends. True for a rank of this
    // process. For a rank of another host its leader reports the death.
    bool alive(int rank) const;
    // Whether its process is stopped by a signal. For a rank of another host, as of its leader's last report.
    bool stopped(int rank) const;
    // The failure that was returned to the rank, if the rank has called nothing since; else ok.
    Status returned_error(int rank) const;
    // Makes this process the rank's process by taking the lock, so that other processes see its death. weftMismatch if
    // the rank already has a process.
    Status claim(int rank) const;
    // Whether a process has claimed the rank and ended before it joined.
    bool died_joining(int rank) const;

  private:
    bool locked_elsewhere(int rank) const;
    bool mapped_by(const RankRow& row) const;

    const Segment* segment_;
};

// For the leader: the rank's process or its whole host has ended. Thread-safe.
void mark_dead(Segment& segment, int rank);

// The inode of this process's pid namespace; 0: unknown.
uint64_t pid_namespace();
// Whether a process of this host is stopped by a signal.
bool process_stopped(int pid);

}  // namespace weft::internal
