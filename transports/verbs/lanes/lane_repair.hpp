// lane_repair.hpp: makes the lanes of a link again that have failed: a new queue pair on the same ports. The lower rank
// begins. A generation of a lane ends with a report from each side, also if it was never used.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "transports/verbs/lanes/lane_frames.hpp"
#include "transports/verbs/lanes/new_lanes.hpp"
#include "transports/verbs/lanes/recovery.hpp"

namespace weft::internal::verbs {

// Owned by a link's set-up. Thread-bound to the service thread.
class LaneRepair {
  public:
    using Send = std::function<void(uint32_t kind, const ByteWriter& content)>;
    LaneRepair(Site& site, uint32_t link, int peer, Send send);
    LaneRepair(const LaneRepair&) = delete;
    LaneRepair& operator=(const LaneRepair&) = delete;
    ~LaneRepair();

    // The link is up with these lanes. Those without a queue pair could not be connected.
    // `rails`: the places of this side's ports.
    void begin(const std::vector<Lane>& lanes, const std::vector<size_t>& rails, const PathOptions& path);
    void take_notice(const LaneNotice& notice);
    // False: the frame cannot be right.
    bool take_frame(uint32_t kind, ByteReader& content);
    // A lane on a port that failed is lost at once. A port that is active again is tried at once, by both sides, also if a
    // probe is still repeated there.
    void take_event(size_t device, const Event& event);
    void end();

  private:
    enum class State {
        used,        // the driving thread has it
        lost,        // may be made
        offered,     // the peer's answer is awaited
        connecting,  // on a thread of its own
        ending,      // this side has reported that it failed, and the peer's report is awaited
    };
    struct Place {
        size_t port = 0, rail = 0;
        uint32_t generation = 0;
        State state = State::used;
        std::shared_ptr<CompletionQueue> queue;  // to use again
        std::shared_ptr<Lane> making;
        PortOffer own;     // of `making`
        LaneOffer answer;  // of the higher rank, which sends it when it has connected `making`
        bool peer_ready = false;
        bool hurried = false;  // a port became active meanwhile: the next try comes at once
        size_t misses = 0;     // pairs of GIDs that did not connect: the higher rank takes the next one
        int64_t used_since_us = 0, wait_us = 0;
        uint64_t timer = 0;

        // A link without lanes waits for the pair that fits, so the first pairs follow each other quickly.
        void missed() {
            constexpr size_t quick = 16;
            if (++misses <= quick) wait_us = 0;
        }
    };
    void port_active(size_t device, int port);
    void hurry(size_t place);
    void lost(size_t place, uint32_t generation, std::shared_ptr<CompletionQueue> queue);
    void retry_later(size_t place);
    void try_now(size_t place);
    Status make(size_t place);
    void take_offer(const LaneOffer& offer);
    Status answer(size_t place, const LaneOffer& offer);
    bool take_answer(const LaneOffer& answer);
    void connect(size_t place, const LaneOffer& peer, size_t own_gid, size_t peer_gid);
    void connected(size_t place, uint32_t generation, const Status& status);
    void take_report(LaneReport report);
    void send_id(uint32_t kind, LaneId id);
    ProbeTarget probe_target(size_t device) const { return site_.devices.all()[device].probe_target(); }
    LaneId next_of(size_t place) const { return {uint32_t(place), places_[place].generation + 1}; }

    Site& site_;
    const uint32_t link_;
    const int peer_;
    const Send send_;
    PathOptions path_;
    std::vector<Place> places_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weft::internal::verbs
