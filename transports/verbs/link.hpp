// link.hpp: the queue pairs between two ranks, and the messages of all their connections in both directions. Data and
// credits arrive as completions only; no memory is polled. Thread-bound to the thread that drives the endpoint.
#pragma once
#include <memory>
#include <vector>

#include "transports/verbs/lanes/recovery.hpp"
#include "transports/verbs/settings.hpp"

namespace weft::internal::verbs {

class Link {
  public:
    // `rails`: it sends on so many of them.
    Link(uint32_t index, int self, int peer, size_t rails, const Settings& settings, std::vector<Lane> lanes);
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    void add(std::shared_ptr<Outgoing> outgoing);
    void add(std::shared_ptr<Incoming> incoming);

    // Posts what credits and the send queues allow.
    void post(Outgoing& outgoing);
    // Returns credits if enough are owed.
    void post_credits(Incoming& incoming);
    // Takes a completion. True: a rank that waits may go on.
    bool take(const abi::Completion& completion);

    // The first cause stays.
    void fail(Status why);
    bool failed() const { return !failure_.ok(); }
    // Failed while the peer lived: messages may be lost.
    bool lost() const { return failed() && ended_us_ == 0; }
    // The peer's process or endpoint has ended. Data that it sent before may still arrive for a moment.
    void peer_ended(Status why, int64_t now_us);
    // The failure, if a wait should end now.
    const Status& failure();

    // Lanes that fail and return (recovery.hpp).
    void lose_queue(const CompletionQueue& queue);
    // A port of this host went down (0: its device failed). A port without a working substitute is left to the retries.
    void lose_port(size_t device, int port, const Status& why);
    void take_report(LaneReport report);
    void install(size_t lane, Lane made);
    void enable(LaneId id);
    void step(bool quiet);  // as Recovery::step()
    bool recovering() const { return recovery_.recovering(); }
    bool waits_by_time() const { return failure_.ok() && (ended_us_ != 0 || recovery_.waits_by_time()); }
    std::vector<LaneNotice> take_notices() { return recovery_.take_notices(); }

    // Whether requests are posted that will complete, or messages wait for credits.
    bool busy() const;
    // Ends all requests: afterwards no device uses the caller's memory.
    void end_requests();
    // Releases the slots of closed senders whose messages are complete. Credits may still come.
    void release_closed();
    uint32_t index() const { return state_.index; }
    const std::vector<Lane>& lanes() const { return state_.lanes; }

  private:
    bool ended() const { return !failure_.ok() || ended_us_ != 0; }
    void lose_lane(size_t lane, Status why);
    bool post_message(Outgoing& outgoing);
    void post_part(Outgoing& outgoing, uint64_t number, int part, size_t lane);
    void post_again();
    bool take_sent(Lane& lane, uint64_t index);
    bool take_failed(size_t lane, const abi::Completion& completion);
    bool take_received(uint32_t word);
    bool take_part(Incoming& incoming, uint32_t word);
    bool take_credits(Outgoing& outgoing, uint32_t word);
    void replenish(size_t lane);
    void retry_starved();
    void damaged(const char* what, uint32_t word);

    LinkState state_;
    const size_t striped_bytes_;
    const PathOptions path_;
    Recovery recovery_;
    bool starved_ = false;  // something waits for a place in a send queue
    Status failure_, ending_;
    int64_t ended_us_ = 0;
};

}  // namespace weft::internal::verbs
