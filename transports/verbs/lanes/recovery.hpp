// recovery.hpp: the lanes of a link that fail and return, as the driving thread knows them. docs/design/verbs-failover.md
// has the protocol. It decides which lanes carry messages, and which parts of messages go again.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "transports/verbs/lanes/lane_frames.hpp"
#include "transports/verbs/link_state.hpp"
#include "transports/verbs/settings.hpp"

namespace weft::internal::verbs {

// For the service thread. First comes the report, which goes to the peer. Then `parted`: both sides have reported, and
// the lane may be made again, with its completion queue, unless that has failed.
struct LaneNotice {
    LaneReport report;
    bool parted = false;
    std::shared_ptr<CompletionQueue> queue;
};

// Owned by the link. Thread-bound to the thread that drives the endpoint.
class Recovery {
  public:
    // `rails`: the link sends on the first so many of them that live.
    Recovery(LinkState& link, size_t rails, const Settings& settings);

    // A part that goes again, because its lane failed before it had arrived.
    struct Again {
        std::shared_ptr<Outgoing> outgoing;
        uint64_t message;
        int part;
    };
    static constexpr uint8_t no_lane = 0xff;

    // The lanes that carry messages now.
    const std::vector<size_t>& usable() const { return usable_; }
    std::vector<Again>& again() { return again_; }
    // A lane has failed, and its parts have not moved to others yet.
    bool recovering() const { return recovering_; }
    // A time may end something.
    bool waits_by_time() const { return recovering_ || none_since_us_ != 0; }

    // No lane lives yet, and this is why.
    void await_lanes(Status why, int64_t now_us) { none_since_us_ = now_us, none_cause_ = std::move(why); }
    // The lane failed. Not ok: the link has no other one, or something of it cannot be repeated, so it fails.
    Status lose(size_t lane, Status why, int64_t now_us);
    // The lanes on this completion queue.
    std::vector<size_t> lanes_on(const CompletionQueue& queue) const;
    // The lanes on a port of this host, if another one can take over. Port 0: all lanes on the device.
    std::vector<size_t> replaceable(size_t device, int port) const;
    // The peer's statement about a lane that failed there.
    Status take_report(LaneReport report, int64_t now_us);
    // After the queues were polled. `quiet`: they were empty. Not ok: the link fails.
    Status step(int64_t now_us, bool quiet);
    // The lane was made again and receives.
    void install(size_t lane, Lane made);
    // The peer receives on it now: sends a probe. An errno value, or 0.
    int probe(LaneId id);
    // The lane, if it still waits for its probe and a new lane may take its place.
    std::vector<size_t> probing(LaneId id) const;
    // A request on it is complete. True: it was the probe, so the lane carries messages from now on.
    bool proved(size_t lane);
    // A request with data is complete.
    void carried() { none_since_us_ = 0; }
    void received(size_t lane) {
        losses_[lane].received = true;
        // A side that only receives has no requests with data.
        if (none_since_us_ != 0 && link_.lanes[lane].state == LaneState::living) [[unlikely]]
            carried();
    }
    // The link has failed, so no request is posted any more: parts that no device reads are complete.
    void abandon();

    // True: the part was the last one of a message.
    static bool complete(Outgoing& outgoing, uint64_t message, int part);
    std::vector<LaneNotice> take_notices();

  private:
    void wait_for_lanes(int64_t now_us);
    void refresh();
    const char* bound_to_lanes() const;
    void finish(Lane& lane, size_t place);
    LaneReport report_of(const Lane& lane, size_t place) const;
    Status apply(const LaneReport& report, size_t place);
    Status apply(const std::shared_ptr<Outgoing>& outgoing, const LaneReport::Connection* arrived, size_t place);
    Status repeat(const std::shared_ptr<Outgoing>& outgoing, uint64_t number, int part);

    LinkState& link_;
    const size_t rails_used_;
    const int64_t patience_us_;
    size_t rails_ = 0;
    std::vector<size_t> usable_;
    std::vector<Again> again_;
    // Of a lane, above all of one that is lost.
    struct Loss {
        bool received = false;  // anything came
        int64_t since_us = 0;
        Status cause;
        std::optional<LaneReport> report;  // the peer's
    };
    std::vector<Loss> losses_;  // by lane
    std::vector<LaneNotice> notices_;
    bool recovering_ = false;
    // No lane carries messages since then; 0: some lane does. Time in which this rank or its peer did not look, or in
    // which a lane might carry messages, moves it forward.
    int64_t none_since_us_ = 0;
    int64_t looked_us_ = 0;
    Status none_cause_;
};

}  // namespace weft::internal::verbs
