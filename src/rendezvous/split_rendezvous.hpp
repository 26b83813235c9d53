// split_rendezvous.hpp: the rendezvous of ranks of one host that make a communicator (the child) from another one (the
// parent). They need no socket: the child's first rank makes the segment and writes its descriptor into the parent's
// segment, and the others open it through /proc. If that fails (other pid namespaces, process isolation), they use a
// unique id that the first rank writes into the parent's segment.
#pragma once
#include <optional>
#include <vector>

#include "src/rendezvous/id_rendezvous.hpp"

namespace weft::internal {

// A communicator that is being made; equal on all of its ranks.
struct Child {
    uint64_t number = 0;     // distinguishes the children of a parent; not 0
    std::vector<int> ranks;  // of the parent, in their order in the child
    bool again = false;      // an earlier, failed attempt may have had the same number
};

// Finds ranks that have given up making a child, so that no rank waits for them. With Child::again only ranks that gave
// up after its construction count.
class GivenUp {
  public:
    GivenUp(const Segment& parent, const Child& child);
    // A rank of the parent on this host; -1: no rank has given up.
    int find(const Segment& parent, const Child& child);

  private:
    std::vector<bool> before_;  // by rank of the child
};
// This rank has given up; this rank begins an attempt.
void say_given_up(const Segment& parent, const Child& child, int rank);
void say_wanted(const Segment& parent, const Child& child, int rank);

class SplitRendezvous final : public Rendezvous {
  public:
    // `rank`: in the child. All of the child's ranks are on this host. `by_id`: uses the unique id at once.
    SplitRendezvous(std::shared_ptr<Segment> parent, Child child, int rank, const RendezvousOptions& options,
                    bool by_id = false);

    Result<bool> advance() override;
    void wait() override;
    std::shared_ptr<Segment> segment() const override { return fallback_ ? fallback_->segment() : segment_; }
    std::shared_ptr<Membership> membership() const override { return {}; }

  private:
    Status find_segment();
    Result<std::shared_ptr<Segment>> map_segment() const;
    Result<bool> take_fallback();
    Status give_up(Status failure);
    Status check_others();
    bool all_here() const;
    std::vector<int> missing_ranks() const;
    SplitRow& split_row(int rank) const { return parent_->row(child_.ranks[size_t(rank)]).split; }

    std::shared_ptr<Segment> parent_;
    Child child_;
    int rank_;
    RendezvousOptions options_;
    bool by_id_;
    std::shared_ptr<Segment> segment_;  // the child's
    std::unique_ptr<IdRendezvous> fallback_;
    std::optional<GivenUp> given_up_;
    bool claimed_ = false;
    int64_t begun_us_ = 0;  // 0: not yet
    int64_t next_check_us_ = 0;
};

}  // namespace weft::internal
