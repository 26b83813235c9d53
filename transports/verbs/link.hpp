// link.hpp: the queue pairs between two ranks, and the messages of all their connections in both directions. Data and
// credits arrive as completions only; no memory is polled. Thread-bound to the thread that drives the endpoint.
#pragma once
#include <memory>
#include <vector>

#include "transports/verbs/lane.hpp"
#include "transports/verbs/settings.hpp"
#include "transports/verbs/transfer_posting.hpp"

namespace weft::internal::verbs {

class Link {
  public:
    Link(uint32_t index, int self, int peer, const Settings& settings, std::vector<Lane> lanes);

    void add(std::shared_ptr<Outgoing> outgoing);
    void add(std::shared_ptr<Incoming> incoming);

    // Posts what credits and the send queues allow.
    void post(Outgoing& outgoing);
    // Returns credits if enough are owed.
    void post_credits(Incoming& incoming);
    // Takes a completion. True: a rank that waits may go on.
    bool take(const abi::Completion& completion);

    // The first cause stays. `told`: the peer knows it already.
    void fail(Status why);
    bool failed() const { return !failure_.ok(); }
    // Failed while the peer lived: messages may be lost.
    bool lost() const { return failed() && ended_us_ == 0; }
    // The peer's process or endpoint has ended. Data that it sent before may still arrive for a moment.
    void peer_ended(Status why, int64_t now_us);
    bool peer_has_ended() const { return ended_us_ != 0; }
    // The failure, if a wait should end now.
    const Status& failure();
    bool waits_for_late_data() const { return ended_us_ != 0 && failure_.ok(); }

    // Whether requests are posted that will complete, or messages wait for credits.
    bool busy() const;
    // Ends all requests: afterwards no device uses the caller's memory.
    void end_requests();
    // Releases the slots of closed senders whose messages are complete. Credits may still come.
    void release_closed();
    uint32_t index() const { return index_; }
    const std::vector<Lane>& lanes() const { return lanes_; }
    Flushes& flushes() { return flushes_; }

    // Posts all requests of a transfer. False: not yet. internal.damaged: the peer uses a device that the key does not
    // have.
    Result<bool> transfer(Outgoing& outgoing, const Transfer& transfer);
    // Posts the reads that confirm the transfers.
    void confirm(Outgoing& outgoing) { (void)posted(post_confirmation(posting_lanes(), outgoing)); }
    // Requests reach the peer.
    bool works() const { return failure_.ok() && ended_us_ == 0; }

  private:
    struct Part {
        const std::byte* data;
        uint64_t bytes, offset;  // in the slot
    };
    struct Write {
        abi::Sge pieces[2];
        abi::SendRequest request;
    };
    void fill(Write& write, const Outgoing& outgoing, const Lane& lane, const Part& part, bool with_header) const;
    bool post_message(Outgoing& outgoing);
    bool post_part(Outgoing& outgoing, size_t lane, const Part& part, bool with_header, int parts);
    bool take_sent(Lane& lane, uint64_t index);
    bool take_ended(const Lane::Posted& request);
    void refused(const Lane& lane, int error);
    PostingLanes posting_lanes() { return {index_, lanes_, striped_bytes_, part_bytes_}; }
    bool posted(const PostingOutcome& outcome);
    bool take_received(Lane& lane, uint32_t word);
    bool take_part(Incoming& incoming, uint32_t word);
    bool take_credits(Outgoing& outgoing, uint32_t word);
    void replenish(size_t lane);
    void retry_starved();
    void damaged(const char* what, uint32_t word);

    const uint32_t index_;
    const int self_, peer_;
    const size_t striped_bytes_;
    const uint64_t part_bytes_;
    const PathOptions path_;
    std::vector<Lane> lanes_;
    std::vector<std::shared_ptr<Outgoing>> outgoing_;
    std::vector<std::shared_ptr<Incoming>> incoming_;
    Flushes flushes_;
    bool starved_ = false;  // something waits for a place in a send queue
    Status failure_, ending_;
    int64_t ended_us_ = 0;
};

}  // namespace weft::internal::verbs
