// split_rendezvous.hpp: a rank's way into a communicator that is made from another one whose ranks are on its host. They need
// no socket to meet: the child's first rank makes the segment and says in the parent's where it is, the others open it
// by its name in that process. Where that may not be (processes numbered differently, or protected from each other)
// they meet by a unique id that the first rank leaves in the parent's segment instead.
#pragma once
#include <optional>
#include <vector>

#include "src/rendezvous/id_rendezvous.hpp"

namespace weft::internal {

// A communicator to be made, as all of its ranks know it.
struct Child {
    uint64_t number = 0;     // tells it from others made from the same parent; not 0
    std::vector<int> ranks;  // of the parent, in their order in the child
    bool again = false;      // the number may be that of an attempt before, which failed
};

// Who has given up making a child: from then on nobody waits for that rank. Where it may be tried again only what was
// said since this was made counts.
class GivenUp {
  public:
    GivenUp(const Segment& parent, const Child& child);
    // A rank of the parent on this host; -1: nobody has.
    int find(const Segment& parent, const Child& child);

  private:
    std::vector<bool> before_;  // by rank of the child
};
// Says so of this rank; begins anew.
void say_given_up(const Segment& parent, const Child& child, int rank);
void say_wanted(const Segment& parent, const Child& child, int rank);

class SplitRendezvous final : public Rendezvous {
  public:
    // `rank`: in the child. All of the child's ranks are on this host. `by_id`: as if no segment could be opened.
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
    std::string missing_ranks() const;
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
