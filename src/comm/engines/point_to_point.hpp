// point_to_point.hpp: the engine of point-to-point messages in host memory, any number at a time, beside a call.
// Messages have no sequence number, because only two ranks take part in each. docs/design/connections.md.
#pragma once
#include "src/comm/call.hpp"
#include "src/comm/engines/message_exchange.hpp"

namespace weft::internal {

// Owned by ActiveCalls. Thread-bound to the rank.
class PointToPoint {
  public:
    explicit PointToPoint(RankContext& context);

    // No message is in progress.
    bool idle() const { return !messages_.exists() || messages_.existing().idle(); }
    // True: the message is done. Most small messages between running ranks need none of the waiting machinery.
    // The exchange exists and is idle.
    bool moved_at_once(const MessageCall& message);
    bool exists() const { return messages_.exists(); }
    void begin(const Call& call, const MessageCall& message);
    Progress advance();
    Blocked blocked() const { return messages_.blocked(); }
    void add_wakeups(Wakeups& wakeups) const { messages_.existing().add_wakeups(wakeups); }
    PartnerWait awaited() const { return messages_.existing().awaited(); }
    Status look();
    Status cause();
    Status take_failure() { return messages_.existing().take_failure(); }
    void abandon() { messages_.existing().abandon(); }
    void withdraw() { messages_.withdraw(); }
    // After a failure: the messages that were not done (see Exchange), and whether look() failed because of messages.
    std::vector<size_t> unfinished() const {
        return messages_.exists() ? messages_.existing().unfinished() : std::vector<size_t>();
    }
    bool in_trouble() const { return in_trouble_; }
    bool may_be_read_by(int peer) const { return messages_.may_be_read_by(peer); }

  private:
    RankContext& context_;
    MessageExchange messages_;
    Limit limit_;  // the earliest deadline of the messages
    RankSet polled_;
    bool in_trouble_ = false;
};

static_assert(CallEngine<PointToPoint>);

}  // namespace weft::internal
