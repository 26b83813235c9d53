// run.hpp: one execution of a plan. make_run() chooses once per plan which engine executes it: the step machine, the
// inline program, one-shot or two-shot.
#pragma once
#include <memory>
#include <vector>

#include "src/base/wakeups.hpp"
#include "src/executor/plan.hpp"
#include "src/executor/progress.hpp"

namespace weft::internal {

// Owned by PreparedPlan. Thread-bound to the rank. It is reused, so that a call allocates nothing.
class Run {
  public:
    virtual ~Run() = default;

    // Binds the buffers of one call: the parts that the rank holds (base/collective.hpp), or null. `operand`: the rank's
    // factor if the plan is scaled, its UserReduction if it calls a function; else null. Buffers are disjoint or in place.
    virtual void start(const void* send, void* receive, const void* operand, uint64_t sequence) = 0;
    // Progresses as far as possible; never blocks.
    virtual Progress advance() = 0;

    const RankSet& missing() const { return report_.missing; }
    int suspect() const { return report_.suspect; }
    // The operation of the suspect's message; 0: it was no message.
    uint64_t suspect_operation() const { return report_.suspect_operation; }
    Status take_failure() { return std::move(report_.failure); }
    // The sockets that a blocked run waits for, besides the flags in shared memory.
    virtual void add_wakeups(Wakeups&) const {}
    // After a failure: afterwards no network writes to the call's buffers.
    virtual void withdraw() {}
    // Whether a peer may be reading or writing the buffers of this call in place
    // (docs/design/shared-memory-protocol.md, rule 9).
    virtual bool may_be_using(int) const { return false; }
    // Whether a peer may be reading zero-copy messages of this call.
    virtual bool may_be_reading(int) const { return false; }

  protected:
    explicit Run(const Plan& plan) : plan_(&plan) {}
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    void begin(uint64_t sequence) {
        sequence_ = sequence;
        report_.clear();
    }

    const Plan* plan_;
    uint64_t sequence_ = 0;
    RunReport report_;
};

}  // namespace weft::internal
