// meeting.hpp: a rank's way into a communicator. It claims its row in the segment of its host (gathering.hpp); when
// every row is claimed, or the roster says that the missing ranks are on other hosts, the communicator is complete.
#pragma once
#include <memory>

#include "src/base/host_group.hpp"
#include "src/bootstrap/unique_id.hpp"

namespace weft {

class Gathering;   // what the ranks of one process share of a meeting
class Membership;  // and what they keep of it, if there are several hosts

struct MeetingOptions {
    int64_t timeout_ms = 0;    // 0: never
    AgreedOptions proposal{};  // this process's wishes; rank 0's become everybody's
    uint64_t host = 0;         // host_identity(), or what stands for it
    DeviceFacts device{};      // for the others of the host
};

// One rank's way into a communicator. Thread-bound; never blocks but in wait().
class Meeting {
  public:
    Meeting(const UniqueId& id, int ranks, int rank, const MeetingOptions& options);
    ~Meeting();

    // True when all ranks have joined. A failure is final, and told to the others.
    Result<bool> advance();
    // Sleeps until something may have happened, some milliseconds at most.
    void wait();
    std::shared_ptr<HostGroup> group() const { return group_; }
    // Null if all ranks are on one host.
    std::shared_ptr<Membership> membership() const { return membership_; }

  private:
    Status claim();
    Status give_up(Status failure);
    Status check_others();
    bool all_here() const;  // on this host
    bool complete() const;  // here or elsewhere
    std::string missing_ranks() const;

    UniqueId id_;
    int ranks_;
    int rank_;
    MeetingOptions options_;
    std::shared_ptr<Gathering> gathering_;
    std::shared_ptr<HostGroup> group_;
    std::shared_ptr<Membership> membership_;
    bool claimed_ = false;
    int64_t begun_us_ = 0;  // 0: not yet
    int64_t next_check_us_ = 0;
};

}  // namespace weft
