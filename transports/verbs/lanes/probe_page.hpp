// probe_page.hpp: memory of a device for the probes of lanes that are made again. Peers write there, and nobody reads it.
#pragma once
#include <memory>
#include <optional>

#include "src/drivers/verbs/memory.hpp"

namespace weft::internal::verbs {

// A page of the peer, as it travels in a LaneOffer.
struct ProbeTarget {
    uint64_t address = 0;
    uint32_t key = 0;  // 0: the peer has none, so probes have no bytes
};

// Source and target of probes. Immutable. A page of its own, because a child after fork may not have it.
class ProbePage {
  public:
    static constexpr size_t bytes = 4'096;  // the largest MTU: a probe has a packet as large as any message
    // verbs.memlock, verbs.call.
    static Result<std::unique_ptr<ProbePage>> make(const ProtectionDomain& domain);
    uint64_t address() const { return uintptr_t(page_); }
    uint32_t lkey() const { return region_->lkey(); }
    ProbeTarget target() const { return {address(), region_->rkey()}; }

  private:
    ProbePage() = default;
    alignas(bytes) std::byte page_[bytes] = {};
    std::optional<MemoryRegion> region_;  // of page_
};

}  // namespace weft::internal::verbs
