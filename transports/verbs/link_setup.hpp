// link_setup.hpp: how two endpoints make a link. They exchange ports and queue pairs over a socket between their doors.
// The socket stays open: its end says that the peer is dead.
#pragma once
#include <memory>
#include <vector>

#include "transports/verbs/lanes/lane_repair.hpp"

namespace weft::internal::verbs {

// Owned by a door. Thread-bound to the service thread. The change that may block for seconds runs on a thread of its own.
class LinkSetup {
  public:
    LinkSetup(Site& site, uint32_t index, uint64_t peer_token, int peer);
    LinkSetup(const LinkSetup&) = delete;
    LinkSetup& operator=(const LinkSetup&) = delete;
    ~LinkSetup();

    // Connects to the peer's door, unless this link has a socket or waits for the peer's.
    void dial(const ListenAddress& address);
    // The peer's socket, on which its offer has come. False: the own one counts.
    bool adopt(std::unique_ptr<ControlConnection>& connection, const Offer& offer);
    void want(uint32_t number, std::shared_ptr<Outgoing> outgoing);
    // A frame of the adopted socket, or its end.
    void take_frame(uint32_t kind, ByteReader& content);
    void take_end(const Status& why);

    // Of the driving thread about a lane, and of a device.
    void take_notice(const LaneNotice& notice);
    void take_event(size_t device, const Event& event);

    // This side gives up: all connections fail, and the peer is told.
    void fail(Status why);
    void part();  // in order
    uint32_t index() const { return index_; }
    int peer() const { return peer_; }

  private:
    enum class State { idle, dialing, greeting, waiting, pairing, connecting, up, failed };
    struct Wanted {
        uint32_t number;
        std::shared_ptr<Outgoing> outgoing;
    };
    Status answer(const Offer& offer);
    Status accept_answer(const Offer& answer);
    Status begin_connecting();
    void connected(const Result<ConnectedLanes>& connected);
    void go_up();
    void send(uint32_t kind, const ByteWriter& content);
    void send_want(const Wanted& wanted);
    void take_want(const Want& want);
    void take_slots(Slots slots);
    void take_refusal(ByteReader& content);
    void send_failure(uint32_t kind, const Status& why);
    void fail_locally(const Status& why);
    void dialed(Result<Fd> socket, const ListenAddress& address);

    Site& site_;
    const uint32_t index_;
    const uint64_t peer_token_;
    const int peer_;
    State state_ = State::idle;
    std::unique_ptr<AsyncConnect> dialing_;
    std::unique_ptr<ControlConnection> connection_;
    uint64_t retry_timer_ = 0;
    NewLanes new_lanes_;
    LaneRepair repair_;
    std::vector<Wanted> wanted_;                       // not asked for yet
    std::vector<std::shared_ptr<Outgoing>> outgoing_;  // by connection
    Status failure_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weft::internal::verbs
