// fabric_join.hpp: how ranks of several hosts in one NVLink domain map each other's memory by fabric handles, after the
// hosts' own domains work. Each rank makes memory and sends its handle to all hosts, maps the others' memory and tests
// that it is reached. Each step begins when all ranks have ended the one before. If a step fails on one rank, no rank
// uses the memory, and the hosts go on as without it. Thread-bound to the rank.
#pragma once
#include <string>
#include <vector>

#include "src/gpu/domain/domain_memory.hpp"
#include "src/gpu/domain/join_entries.hpp"
#include "src/gpu/domain/reach/reach_test.hpp"

namespace weft::internal::cuda {

class FabricJoin {
  public:
    // All must outlive this object.
    FabricJoin(const DomainRanks& ranks, DomainMemory& memory)
        : ranks_(ranks),
          memory_(memory),
          entries_(ranks, JoinEntries::Readers::all_hosts),
          test_(memory, {ranks.rank, entries_.posting(), memory.fabric().bases, memory.fabric().layout.probe,
                         memory.fabric().layout.message_slots}) {}

    // Whether the ranks try it; equal on all ranks.
    bool wanted() const;
    // One step. True: all ranks know whether they use the memory. The context must be current.
    Result<bool> advance();
    // The ranks that advance() waits for.
    std::vector<int> missing() const;
    bool works() const { return stage_ == Stage::works; }
    // Why it is not used, equal on all ranks.
    const std::string& obstacle() const { return obstacle_; }
    // Unmaps the memory of others. May wait for the device.
    void unmap();
    // Destroys the stream; its context must be current.
    void end() { test_.end(); }

  private:
    enum class Stage { making, mapping, verifying, agreeing, works, refused };

    Status make();
    bool shares_addresses(int peer) const;
    Status map(int peer);
    Status map_all();
    Status verify();
    // Whether all ranks have ended a step without a failure.
    bool passed(int entry);
    Status report(int entry, const Status& done, Stage next);

    const DomainRanks& ranks_;
    DomainMemory& memory_;
    JoinEntries entries_;
    ReachTest test_;
    Stage stage_ = Stage::making;
    std::string obstacle_;
};

}  // namespace weft::internal::cuda
