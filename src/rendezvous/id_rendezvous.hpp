// id_rendezvous.hpp: the rendezvous of a rank by unique id. The rank claims its row in the segment of its host
// (host_rendezvous.hpp). The communicator is complete when every row is claimed, or when the rank table says that the
// missing ranks are on other hosts.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/control/agreed_texts.hpp"
#include "src/rendezvous/unique_id.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

class HostRendezvous;  // shared by the ranks of one process
class Membership;      // likewise, after the rendezvous of several hosts

struct RendezvousOptions {
    int64_t timeout_ms = 0;    // 0: never
    AgreedOptions proposal{};  // this process's options; all ranks use rank 0's
    // For AgreedTexts; none: unknown. Rank 0 calls both, the leader of a host calls `machine`. They may take some
    // milliseconds. Their failure becomes AgreedTexts::refusal.
    std::function<Result<std::string>()> tuning{};
    std::function<Result<MachineText>()> machine{};
    uint64_t host = 0;     // host_identity(), or a substitute in tests
    CpuQuota quota{};      // of this process
    Networks networks{};   // RankInfo::networks
    DeviceFacts device{};  // for the other ranks of the host
    bool spread = false;   // known to have ranks on several hosts
    bool roots = false;    // this process becomes the root of an id of UniqueId::of_child()
};

// One rank's rendezvous. Thread-bound; only wait() blocks.
class Rendezvous {
  public:
    virtual ~Rendezvous() = default;
    // True when all ranks have joined. A failure is final and is reported to the other ranks.
    virtual Result<bool> advance() = 0;
    // Sleeps until advance() may have work, for some milliseconds at most.
    virtual void wait() = 0;
    virtual std::shared_ptr<Segment> segment() const = 0;
    // Null if all ranks are on one host.
    virtual std::shared_ptr<Membership> membership() const = 0;
};

class IdRendezvous final : public Rendezvous {
  public:
    IdRendezvous(const UniqueId& id, int ranks, int rank, const RendezvousOptions& options);
    ~IdRendezvous() override;

    Result<bool> advance() override;
    void wait() override;
    std::shared_ptr<Segment> segment() const override { return segment_; }
    std::shared_ptr<Membership> membership() const override { return membership_; }

  private:
    Status claim();
    Status give_up(Status failure);
    Status check_others();
    bool all_here() const;  // on this host
    bool complete() const;  // on this host or on several
    bool died(int rank) const;
    Status late() const;
    std::vector<int> missing() const;  // ranks that have not joined, as far as this host knows
    int first_missing() const;
    std::string stopped_processes() const;

    UniqueId id_;
    int ranks_;
    int rank_;
    RendezvousOptions options_;
    std::shared_ptr<HostRendezvous> host_rendezvous_;
    std::shared_ptr<Segment> segment_;
    std::shared_ptr<Membership> membership_;
    bool claimed_ = false;
    int64_t begun_us_ = 0;  // 0: not yet
    int64_t next_check_us_ = 0;
};

// Writes the row of `rank` in the segment of its host and counts it as joined. `backed`: the row has memory already.
Status claim_row(Segment& segment, int rank, int ranks, const RendezvousOptions& options, bool backed = false);

}  // namespace weft::internal
