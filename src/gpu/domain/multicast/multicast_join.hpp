// multicast_join.hpp: how the ranks of a domain make staging memory that lies on all their devices and behind one address
// for the switch. The first rank creates the multicast object. In three steps all ranks add their devices, bind memory,
// and map the object; each step begins when all ranks have ended the one before. If one rank fails, none uses the memory.
// Thread-bound to the rank.
#pragma once
#include <string>
#include <vector>

#include "src/gpu/domain/domain_memory.hpp"
#include "src/gpu/domain/join_entries.hpp"
#include "src/gpu/domain/multicast/multicast_post.hpp"

namespace weft::internal::cuda {

class MulticastJoin {
  public:
    // All must outlive this object. least_ranks: see Domain.
    MulticastJoin(const DomainRanks& ranks, DomainMemory& memory, JoinEntries& entries, int least_ranks)
        : ranks_(ranks), memory_(memory), entries_(entries), least_ranks_(least_ranks) {}

    // Whether the ranks try it; equal on all ranks.
    bool wanted() const;
    // One step. True: all ranks know whether they use the memory. The context must be current.
    Result<bool> advance();
    // The ranks that advance() waits for.
    std::vector<int> missing() const;
    bool works() const { return stage_ == Stage::works; }
    // Why it is not used, equal on all ranks.
    const std::string& obstacle() const { return obstacle_; }
    // Closes the posted descriptor.
    void withdraw() { post_.withdraw(); }

  private:
    enum class Stage { creating, adding, binding, mapping, agreeing, works, refused };

    Status create();
    // False: the first rank's process has not passed its descriptor yet.
    Result<bool> add();
    Status fetch_and_add();
    Status bind();
    // Whether all ranks have ended a step without a failure.
    bool passed(int entry);
    Status report(int entry, const Status& done, Stage next);

    const DomainRanks& ranks_;
    DomainMemory& memory_;
    JoinEntries& entries_;
    int least_ranks_;
    Stage stage_ = Stage::creating;
    Status created_;
    std::string obstacle_;
    MulticastPost post_;  // the first rank's
};

}  // namespace weft::internal::cuda
