// device_failure.hpp: explains failures of calls on GPUs for all ranks. A kernel's report has only rank numbers and
// fingerprints of calls. A kernel cannot know that the rank that it waits for has died or left.
#pragma once
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "src/base/result.hpp"
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/gpu/kernels/count_faults.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// The operations that a rank has planned, by fingerprint. Thread-safe. Not on the hot path.
class PlannedOperations {
  public:
    void add(const Operation& operation);
    std::optional<Operation> find(uint32_t fingerprint) const;

  private:
    static constexpr size_t most = 4096;
    mutable std::mutex mutex_;
    std::vector<Operation> all_;
};

// Explains invalid counts that a rank passed to weftAlltoAllvDeviceCounts.
Status explain_counts(int rank, const cuda::CountFault& fault);

// Made for one look at the state. Reentrant.
struct DeviceDiagnosis {
    const Segment& group;
    int rank;
    const PlannedOperations& known;
    uint64_t timeout_ns;  // the communicator's

    // The failure that a kernel of `rank` has reported. `message` counts if it is valid, `signal` if the kernel waited
    // for one.
    Status explain(const cuda::FailureReport& report, const cuda::MessageReport& message,
                   const cuda::SignalReport& signal) const;
    // The failure of a rank that died, left or called something else while our kernels may wait for it; ok: none.
    // `waiting(other, died)`: whether a kernel runs that may wait for `other`. If `other` died, the awaited data must
    // also be unable to arrive any more. It is called only if the answer matters.
    Status check_peers(const std::function<bool(int other, bool died)>& waiting) const;
    // Whether explain() has all facts. The call of a rank of another host may not be known yet.
    bool informed(const cuda::FailureReport& report) const;

  private:
    Status explain_message(const cuda::FailureReport& report, const cuda::MessageReport& message) const;
    // "waited 0.1 s for rank 1, the deadline (WEFT_TIMEOUT_MS) is 100 ms"
    std::string waited(const cuda::FailureReport& report, const std::string& what) const;
    std::string name_of(int other) const;  // adds that the process is stopped; a verb follows
    // The name and the last enqueued call.
    std::string position_text(int other) const;
    // Whether the rank has made as many calls as this one: then it is not late.
    bool has_made_our_calls(int other) const;
};

// Finds ranks that died or left while our kernels wait for their messages or signals, or whose end could not be reported
// because a leader on the way died. A rank that owes nothing may leave. For one thread.
class DepartedPeers {
  public:
    // The failure; ok: there is no such rank, or its last data may not have been seen yet. The arrays are by block. Data
    // of other hosts came still_us ago. With `over_hosts` it comes through device memory.
    Status look(const Segment& group, int rank, const cuda::BlockWait* block_waits, int64_t still_us, bool over_hosts);
    // How long a block has been waiting, as seen at each look; 0: none waits.
    int64_t waited_us(const cuda::BlockWait* block_waits, int64_t now_us);

  private:
    // The rank that was gone when a block had polled `polls_` times; -1: none.
    int gone_ = -1, block_ = 0;
    uint64_t polls_ = 0;
    // Of waited_us(): a block that waits since then, and its polls at the last look; since 0: none.
    int waiting_ = 0;
    int64_t since_us_ = 0;
    uint64_t seen_polls_ = 0;
};

}  // namespace weft::internal
