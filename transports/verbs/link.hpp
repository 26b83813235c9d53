// link.hpp: the queue pairs between two ranks, and the messages of all their connections in both directions. Data and
// credits arrive as completions only; no memory is polled. Thread-bound to the thread that drives the endpoint.
#pragma once
#include <memory>
#include <vector>

#include "transports/verbs/credits.hpp"
#include "transports/verbs/flush.hpp"
#include "transports/verbs/lanes/recovery.hpp"
#include "transports/verbs/settings.hpp"
#include "transports/verbs/transfer_posting.hpp"

namespace weft::internal::verbs {

class Link {
  public:
    // `rails`: it sends on so many of them.
    Link(uint32_t index, int self, int peer, size_t rails, const Settings& settings, std::vector<Lane> lanes,
         std::shared_ptr<Flushes> flushes);
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    void add(std::shared_ptr<Outgoing> outgoing);
    void add(std::shared_ptr<Incoming> incoming);

    // Posts what credits and the send queues allow.
    void post(Outgoing& outgoing);
    // Returns credits if enough are owed.
    void post_credits(Incoming& incoming);
    // Tells the sender of an offer. False: not now, or some lane has no key of the memory.
    bool post_offer(Incoming& incoming, uint64_t message, const OpenOffers::Offer& offer);
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
    // For one cause, as Recovery::replaceable() and probing() name them.
    void lose_lanes(const std::vector<size_t>& lanes, const Status& why);
    void take_report(LaneReport report);
    void install(size_t lane, Lane made);
    void enable(LaneId id);
    void step(bool quiet);  // as Recovery::step()
    Recovery& recovery() { return recovery_; }
    bool waits_by_time() const { return failure_.ok() && (ended_us_ != 0 || recovery_.waits_by_time()); }

    // Whether requests are posted that will complete, or messages wait for credits.
    bool busy() const;
    // Ends all requests: afterwards no device uses the caller's memory.
    void end_requests();
    const LinkState& state() const { return state_; }

    // Posts all requests of a transfer. False: not yet. internal.damaged: the peer uses a device that the key does not
    // have.
    Result<bool> transfer(Outgoing& outgoing, const Transfer& transfer);
    // Confirms the transfers that are complete, unless the link has failed: then requests end without having reached the
    // peer.
    void settle(Outgoing& outgoing) {
        if (!ended() && !outgoing.transfers.settle()) confirm(outgoing);
    }

  private:
    bool ended() const { return !failure_.ok() || ended_us_ != 0; }
    // Posts the reads that confirm the transfers.
    void confirm(Outgoing& outgoing) { (void)posted(post_confirmation(posting_lanes(), outgoing)); }
    void lose_lane(size_t lane, Status why);
    PostingLanes posting_lanes() {
        return {state_.index, state_.lanes, recovery_.usable(), striped_bytes_, part_bytes_};
    }
    bool posted(const PostingOutcome& outcome);
    bool post_message(Outgoing& outgoing);
    void post_part(Outgoing& outgoing, uint64_t number, int part, size_t lane);
    void post_again();
    bool take_sent(Lane& lane, uint64_t index);
    bool take_failed(size_t lane, const abi::Completion& completion);
    bool take_received(uint32_t word);
    bool take_part(Incoming& incoming, uint32_t word);
    bool take_credits(uint32_t word);
    void replenish(size_t lane);
    void retry_starved();
    void damaged(const char* what, uint32_t word);

    LinkState state_;
    const size_t striped_bytes_;
    const uint64_t part_bytes_;
    const PathOptions path_;
    const AdaptiveRouting routing_;
    Recovery recovery_;
    std::shared_ptr<Flushes> flushes_;
    Credits credits_{state_};
    bool starved_ = false;  // something waits for a place in a send queue
    Status failure_, ending_;
    int64_t ended_us_ = 0;
};

}  // namespace weft::internal::verbs
