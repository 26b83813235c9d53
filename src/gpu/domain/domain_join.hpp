// domain_join.hpp: the protocol by which ranks make a domain together. With each method the ranks of a host export
// their memory, map the exports of the others, and verify that they work. Then the hosts exchange their results. All
// ranks read the same entries, so all come to the same result. Thread-bound to the rank.
#pragma once
#include <string>
#include <vector>

#include "src/gpu/domain/launch_order.hpp"
#include "src/gpu/domain/memory_exports.hpp"
#include "src/gpu/domain/multicast/multicast_join.hpp"

namespace weft::internal::cuda {

class DomainJoin {
  public:
    // All must outlive this object. The join makes the events of `order`. multicast_ranks: see Domain.
    DomainJoin(const DomainRanks& ranks, DomainMemory& memory, LaunchOrder& order, int multicast_ranks)
        : ranks_(ranks),
          memory_(memory),
          order_(order),
          entries_(ranks),
          test_(ranks, memory),
          exports_(ranks, memory, entries_, test_),
          multicast_(ranks, memory, entries_, multicast_ranks) {}

    // See Domain.
    void object(const Status& why) { obstacle_ = why.sentence(); }
    Result<bool> advance();
    std::vector<int> missing() const;
    const std::string& obstacle() const { return obstacle_; }
    const std::string& fallback_reason() const { return fallback_reason_; }
    std::string fallback_text() const;
    const MulticastJoin& multicast() const { return multicast_; }

    // Closes the posted descriptors.
    void withdraw() {
        exports_.withdraw();
        multicast_.withdraw();
    }
    // Unmaps the memory of others. May wait for the device.
    void unmap() {
        test_.synchronize_after_failure();
        exports_.unmap();
    }
    // Destroys the stream; its context must be current.
    void end() { test_.end(); }

  private:
    // agreeing: the host's ranks have a result, and wait for those of the other hosts.
    enum class Stage { exporting, reaching, verifying, multicast, agreeing, known };

    Status export_memory();
    Status begin();
    Result<bool> reach();
    Status verify();
    // Ends a stage of the current method: the domain works, or another method is tried, or there is none.
    void conclude(int stage);

    const DomainRanks& ranks_;
    DomainMemory& memory_;
    LaunchOrder& order_;
    JoinEntries entries_;
    ReachTest test_;
    MemoryExports exports_;
    MulticastJoin multicast_;
    Stage stage_ = Stage::exporting;
    std::string obstacle_, fallback_reason_;
    uint64_t host_backed_ = 0;  // by bit: the ranks whose device memory is replaced
    std::string tried_;         // why the earlier methods failed
    std::string not_exported_;  // why this rank exports nothing with this method
    int late_ = -1;             // the rank whose process has not passed its descriptor yet; -1: none
    bool reported_ = false;     // the other hosts have our result
};

}  // namespace weft::internal::cuda
