// control_connection.hpp: a connection between the leaders of two hosts, or between a leader and the root.
// It sends frames as the socket accepts them, passes received frames to a callback, and reports its end once.
// Thread-bound to the service thread.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/base/clock.hpp"
#include "src/control/rank_table.hpp"
#include "src/control/service.hpp"
#include "src/net/frames.hpp"
#include "src/net/listener.hpp"
#include "src/net/outgoing_connection.hpp"

namespace weft::internal {

// Sends frames as the socket takes them, passes received frames to a callback, and reports its end once. Thread-bound to
// the service thread.
class ControlConnection {
  public:
    using OnFrame = std::function<void(uint32_t kind, ByteReader& content)>;
    using OnEnd = std::function<void(Status)>;  // the connection broke or was closed; no callback follows
    // Both callbacks may destroy the connection.
    ControlConnection(Service& service, Fd socket, OnFrame on_frame, OnEnd on_end, Clock clock = now_us);
    ~ControlConnection();

    void send(uint32_t kind, const ByteWriter& content = {});
    bool idle() const { return stream_.queued_bytes() == 0; }
    // Whether the other end's kernel has acknowledged all sent bytes: they arrive even if this process ends now.
    bool arrived() const;
    // Closes the connection once all queued frames are sent, then calls on_end with success.
    void close_when_idle();
    // Call it before an orderly destruction: sent frames still arrive, and received ones are dropped.
    void part();
    // The orderly end without loss: sends all queued frames, closes this direction, and drops what is received. When the
    // other end has closed, too, it calls on_end with success.
    void finish();
    const net::Address& peer() const { return stream_.peer(); }
    // The time since the other machine sent anything, including its kernel's acknowledgements. Empty: unknown.
    std::optional<int64_t> machine_silent_us() const;
    // net::lost_packets() of the connection; empty if the other end has been silent itself.
    std::string lost_packets() const;
    std::string missing_packets() const;
    int64_t heard_us = 0;   // when a frame was last received
    int64_t spoken_us = 0;  // when a frame was last queued

  private:
    void step(uint32_t events);
    void rewatch();
    void end(Status why);

    Service* service_;
    Clock clock_;
    net::FrameStream stream_;
    OnFrame on_frame_;
    OnEnd on_end_;
    bool closing_ = false, finishing_ = false, shut_ = false;
    bool watched_ = false, out_watched_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once destroyed, for posted callbacks
};

// Connects and authenticates until it has succeeded or failed. Thread-bound to the service thread.
class AsyncConnect {
  public:
    using OnDone = std::function<void(Result<Fd>)>;  // may destroy the AsyncConnect
    AsyncConnect(Service& service, const net::Identity& identity, net::Purpose purpose, net::TargetProcess target,
                 std::vector<net::Address> addresses, OnDone on_done);
    ~AsyncConnect();
    const net::Address& peer() const { return outgoing_.peer(); }
    bool closed_early() const { return outgoing_.closed_early(); }
    bool unknown() const { return outgoing_.unknown(); }
    bool refused() const { return outgoing_.refused(); }
    bool misdirected() const { return outgoing_.misdirected(); }
    std::string pending() const { return outgoing_.pending(); }

  private:
    void step();
    void forget();

    Service* service_;
    net::OutgoingConnection outgoing_;
    OnDone on_done_;
    std::vector<int> watched_;
    uint64_t timer_ = 0;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// The process's listener, as its service thread uses it: it passes connections of rendezvous and control to the code that
// expects them. Data connections stay in the listener. Thread-safe.
class AcceptDispatcher {
  public:
    static Result<std::shared_ptr<AcceptDispatcher>> of_process();
    ~AcceptDispatcher();

    net::Listener& listener() { return *listener_; }
    Service& service() { return *service_; }

    using OnAccepted = std::function<void(net::AcceptedConnection)>;
    // The callbacks run on the service thread. Without a `token`, the call takes all connections that no other code expects.
    // The callback on_trouble is called repeatedly once a process that knows the secret was refused (Listener::trouble()).
    using OnTrouble = std::function<void(const Status&)>;
    void expect(const net::IdName& name, uint32_t kind, std::optional<uint64_t> token, OnAccepted on_accepted,
                OnTrouble on_trouble = {});
    void stop_expecting(const net::IdName& name, uint32_t kind, std::optional<uint64_t> token);

    AcceptDispatcher(std::shared_ptr<Service> service, std::shared_ptr<net::Listener> listener, Fd listener_event,
                     Fd pending);

  private:
    struct Key {
        net::IdName name;
        uint32_t kind;
        auto operator<=>(const Key&) const = default;
    };
    struct Expected {
        std::map<uint64_t, OnAccepted> by_token;
        OnAccepted any;
        OnTrouble on_trouble;
        std::multimap<uint64_t, net::AcceptedConnection> early;  // for tokens without a handler yet
    };
    void step();
    void hand_over(const Key& key);

    std::shared_ptr<Service> service_;
    std::shared_ptr<net::Listener> listener_;
    Fd listener_event_, pending_event_;  // duplicates of the listener's descriptors
    std::map<Key, Expected> expected_;
};

}  // namespace weft::internal
