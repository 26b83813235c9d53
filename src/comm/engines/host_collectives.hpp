// host_collectives.hpp: the engine of collectives of equal parts on host memory: from the plan cache, or planned on the
// first call of a key, then executed by a Run.
#pragma once
#include "src/comm/call.hpp"
#include "src/comm/engines/call_engine.hpp"
#include "src/planning/plan_cache.hpp"

namespace weft::internal {

// Owned by ActiveCalls. Thread-bound to the rank.
class HostCollectives {
  public:
    explicit HostCollectives(RankContext& context) : context_(context) {}

    Begun begin(const Call& call, const CollectiveCall& collective) {
        limit_ = {call.settings.timeout_ms, call.timeout_set_by};
        ++context_.sequence;
        context_.waiting.seen_here();
        prepared_ = plans_.find(PlanKey(collective.operation, call.settings.preference));
        if (!prepared_) [[unlikely]]
            return choose(collective, call.settings.preference);
        context_.row().position.enter(context_.sequence, prepared_->plan.operation);
        prepared_->run->start(collective.send, collective.receive, collective.operand.data, context_.sequence);
        context_.watchdog.begin();
        return Begun::yes;
    }
    Progress advance();
    Blocked blocked() const {
        // Connection set-up goes through shared memory. Later, some connections are sockets.
        if (!prepared_) return {&missing_binding_};
        return {&prepared_->run->missing(), prepared_->plan.networked};
    }
    void add_wakeups(Wakeups& wakeups) const {
        if (prepared_) prepared_->run->add_wakeups(wakeups);
    }
    Status look();
    Status cause() { return context_.watchdog.cause(context_.sequence, context_.position().operation); }
    Status take_failure() { return std::move(failure_); }
    void abandon() {}
    void withdraw() {
        if (prepared_) prepared_->run->withdraw();
    }
    // After a failure: whether `peer` may still use the buffers of the call. `gave_up`: the call that it gave up, or 0.
    bool may_be_using(int peer, uint64_t gave_up) const;
    uint64_t heap_bytes() const { return plans_.heap_bytes(); }

  private:
    Begun choose(const CollectiveCall& collective, uint8_t preference);
    Status connect();

    RankContext& context_;
    PlanCache plans_;
    Limit limit_;
    PreparedPlan* prepared_ = nullptr;  // of the call; null while connections are made
    Status failure_;

    // While the call has no plan.
    CollectiveCall planned_;
    uint8_t preference_ = 0;
    Choice choice_;
    Binding* binding_ = nullptr;  // of choice_
    RankSet missing_binding_;
};

static_assert(CallEngine<HostCollectives>);

}  // namespace weft::internal
