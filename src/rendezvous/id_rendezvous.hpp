// id_rendezvous.hpp: a rank's way into a communicator by its unique id. It claims its row in the segment of its host
// (host_rendezvous.hpp); when every row is claimed, or the rank table says that the missing ranks are on other hosts, the
// communicator is complete.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "src/control/agreed_texts.hpp"
#include "src/rendezvous/unique_id.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

class HostRendezvous;  // what the ranks of one process share of a rendezvous
class Membership;      // and what they keep of it, if there are several hosts

struct RendezvousOptions {
    int64_t timeout_ms = 0;    // 0: never
    AgreedOptions proposal{};  // this process's requests; rank 0's become everybody's
    // For AgreedTexts; none: unknown. Rank 0 asks for both, who leads a host for the machine. They may take some
    // milliseconds; what they fail with becomes AgreedTexts::refusal.
    std::function<Result<std::string>()> tuning{};
    std::function<Result<MachineText>()> machine{};
    uint64_t host = 0;     // host_identity(), or what stands for it
    CpuQuota quota{};      // of this process
    DeviceFacts device{};  // for the others of the host
    bool spread = false;   // known to have ranks on several hosts
    bool roots = false;    // this process shall be the root of an id of UniqueId::of_child()
};

// One rank's way into a communicator. Thread-bound; never blocks but in wait().
class Rendezvous {
  public:
    virtual ~Rendezvous() = default;
    // True when all ranks have joined. A failure is final, and told to the others.
    virtual Result<bool> advance() = 0;
    // Sleeps until something may have happened, some milliseconds at most.
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
    bool complete() const;  // here or elsewhere
    bool died(int rank) const;
    Status late() const;
    std::string missing_ranks() const;
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

// Writes the row of `rank` in the segment of its host and counts it as joined. `backed`: the row has its memory already.
Status claim_row(Segment& segment, int rank, int ranks, const RendezvousOptions& options, bool backed = false);

}  // namespace weft::internal
