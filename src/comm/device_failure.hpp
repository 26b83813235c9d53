// device_failure.hpp: what has become of a call on devices, in sentences for all ranks: a kernel's report names ranks
// by number and calls by fingerprint; and of whom a kernel waits in vain, for it cannot know.
#pragma once
#include <functional>
#include <mutex>
#include <vector>

#include "src/base/host_group.hpp"
#include "src/base/result.hpp"
#include "src/executor/cuda/kernel_arguments.hpp"

namespace weft {

// The operations that a rank has planned, by fingerprint. Thread-safe; not on the hot path.
class KnownOperations {
  public:
    void add(const Operation& operation);
    // "all_reduce of ..."; empty: not known.
    std::string text(uint32_t fingerprint) const;

  private:
    static constexpr size_t most = 4096;
    mutable std::mutex mutex_;
    std::vector<Operation> all_;
};

// For one look. Reentrant.
struct DeviceObserver {
    const HostGroup& group;
    int rank;
    const KnownOperations& known;
    uint64_t timeout_ms;

    // The failure that a kernel of `rank` has reported.
    Status explain(const cuda::FailureReport& report) const;
    // A rank that died or left, or has called something else, while kernels of ours wait for it or may do so; ok: none.
    // `waiting`: whether any kernel runs that may wait for that rank, asked only if it matters.
    Status look_at_others(const std::function<bool(int other)>& waiting) const;
    // Whether explain() can say all that it has to: news of what a rank of another host called may be on their way.
    bool informed(const cuda::FailureReport& report) const;

  private:
    // What a rank enqueued last, and whether its process runs.
    std::string whereabouts(int other) const;
};

}  // namespace weft
