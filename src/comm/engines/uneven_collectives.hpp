// uneven_collectives.hpp: the engine of collectives of uneven parts on host memory. Each part is a message.
#pragma once
#include "src/comm/call.hpp"
#include "src/comm/engines/message_exchange.hpp"
#include "src/p2p/partial_results.hpp"

namespace weft::internal {

MessageCaller caller_for(Collective collective);

// Owned by ActiveCalls. Thread-bound to the rank.
class UnevenCollectives {
  public:
    explicit UnevenCollectives(RankContext& context);

    Begun begin(const Call& call, const UnevenCall& collective);
    Progress advance();
    Blocked blocked() const { return parts_.blocked(); }
    void add_wakeups(Wakeups& wakeups) const { parts_.existing().add_wakeups(wakeups); }
    Status look();
    Status cause() { return context_.watchdog.cause(context_.sequence, context_.position().operation); }
    Status take_failure() { return std::move(failure_); }
    void abandon() { parts_.existing().abandon(); }
    void withdraw() { parts_.withdraw(); }
    // After a failure: whether `peer` may still read the buffers of the call.
    bool may_be_read_by(int peer) const { return parts_.may_be_read_by(peer); }
    uint64_t heap_bytes() const { return partial_results_.heap_bytes(); }

  private:
    RankContext& context_;
    MessageExchange parts_;  // messages in the order of the calls
    PartialResults partial_results_;
    Operation operation_;  // of the call
    Limit limit_;
    Status failure_;
};

static_assert(CallEngine<UnevenCollectives>);

}  // namespace weft::internal
