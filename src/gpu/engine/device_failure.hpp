// device_failure.hpp: what has become of a call on devices, in sentences for all ranks: a kernel's report names ranks
// by number and calls by fingerprint; and of whom a kernel waits in vain, for it cannot know.
#pragma once
#include <functional>
#include <mutex>
#include <vector>

#include "src/base/result.hpp"
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/gpu/kernels/count_faults.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// The operations that a rank has planned, by fingerprint. Thread-safe; not on the hot path.
class PlannedOperations {
  public:
    void add(const Operation& operation);
    // "all_reduce of ..."; empty: not known.
    std::string text(uint32_t fingerprint) const;

  private:
    static constexpr size_t most = 4096;
    mutable std::mutex mutex_;
    std::vector<Operation> all_;
};

// What is wrong with the counts that a rank gave to weftAlltoAllvDeviceCounts.
Status explain_counts(int rank, const cuda::CountFault& fault);

// For one look. Reentrant.
struct DeviceDiagnosis {
    const Segment& group;
    int rank;
    const PlannedOperations& known;
    uint64_t timeout_ns;  // the communicator's

    // The failure that a kernel of `rank` has reported; `message` counts if it is valid, `signal` if one waited for it.
    Status explain(const cuda::FailureReport& report, const cuda::MessageReport& message,
                   const cuda::SignalReport& signal) const;
    // A rank that died or left, or has called something else, while kernels of ours wait for it or may do so; ok: none.
    // `waiting`: whether any kernel runs that may wait for that rank, asked only if it matters; of one that died, whether
    // for something that can no longer be on its way.
    Status check_peers(const std::function<bool(int other, bool died)>& waiting) const;
    // Whether explain() can say all that it has to: news of what a rank of another host called may be on their way.
    bool informed(const cuda::FailureReport& report) const;

  private:
    Status explain_message(const cuda::FailureReport& report, const cuda::MessageReport& message) const;
    // "waited 0.1 s for rank 1, the deadline (WEFT_TIMEOUT_MS) is 100 ms"
    std::string waited(const cuda::FailureReport& report, const std::string& what) const;
    std::string name_of(int other) const;  // and whether its process is stopped; a verb follows
    // The same, and what the rank enqueued last.
    std::string position_text(int other) const;
    // As many as we have: it is not late, whatever its kernels wait for.
    bool has_made_our_calls(int other) const;
};

// Ranks that died or left while kernels of ours wait for messages with them or for their signals: who owes nothing may
// go.
// For one thread.
class DepartedPeers {
  public:
    // block_waits: by block. still_us: since something came from another host. ok: none, or what it sent before may not have
    // been seen yet.
    Status look(const Segment& group, int rank, const cuda::BlockWait* block_waits, int64_t still_us);

  private:
    // Who was gone when a block had looked so often; nobody: -1.
    int gone_ = -1, block_ = 0;
    uint64_t polls_ = 0;
};

}  // namespace weft::internal
