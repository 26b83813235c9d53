// listener.hpp: the only place where a process accepts connections. A client proves the secret of a registered
// communicator and names the purpose. The connection is then pending until the part of Weft that expects it takes it.
// Processes without the secret cannot connect, nor keep others from connecting.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/base/fd.hpp"
#include "src/net/address.hpp"
#include "src/net/handshake.hpp"
#include "src/net/pending_connections.hpp"
#include "src/net/rate_limit.hpp"

namespace weft::internal::net {

// Thread-safe. Sockets of a parent process are not used after a fork: the child's of_process() opens a new listener.
class Listener {
  public:
    // How many unauthenticated connections are held at once, and for how long; a legitimate one needs a round trip.
    static constexpr size_t unauthenticated_max = 512;
    static constexpr int64_t handshake_timeout_us = 10'000'000;

    // The process's listener, opened by the first caller and closed with its last owner.
    static Result<std::shared_ptr<Listener>> of_process();
    // A listener on a free port of each address; for of_process() and tests. `last`: a port that is taken only if no other
    // one is free, or 0.
    static Result<std::shared_ptr<Listener>> open(const std::vector<Address>& addresses, const std::string& port_range,
                                                  int last = 0);

    // With the port, best first.
    const std::vector<Address>& addresses() const { return addresses_; }
    // Also listens on this port of all interfaces: for a root whose port was agreed before. Idempotent.
    Status listen_also(uint16_t port);

    // Accepts connections of a communicator. Counted; the last unregister_identity() drops its pending connections.
    // `root`: the communicator's ranks check in at this process.
    void register_identity(const Identity& identity, bool root = false);
    void unregister_identity(const IdName& name, bool root = false);
    // The oldest pending connection of this kind, and token if one is given.
    std::optional<AcceptedConnection> accept_for(const IdName& name, uint32_t kind, std::optional<uint64_t> token = {});
    // mismatch.version: a process that knows the secret was refused because of its version. The sentence names both
    // versions. system.descriptors: no connection could be accepted for seconds, because no descriptor is left.
    Status trouble(const IdName& name) const;

    // Accepts, advances handshakes, makes connections pending. Never blocks, not even on another thread that does it.
    Status progress();
    // An epoll descriptor: readable when progress() has work, also when a timer has expired.
    int descriptor() const { return epoll_.number(); }
    // Readable as long as a connection is pending for this communicator; -1: it is not registered. Valid until its last
    // unregister_identity(). For a thread that sleeps while another thread calls progress().
    int pending_descriptor(const IdName& name);
    // For all communicators. Readable since the first connection was pending, and *edge-triggered* (EPOLLET) once more
    // for each connection: never read it.
    int pending_event_descriptor() const { return pending_event_.number(); }

  private:
    struct Unauthenticated {
        Fd socket;
        Address peer;
        ServerHandshake handshake;
        int64_t since_us;
        short events = 0;      // polled for
        bool leaving = false;  // the refusal is sent: only the end of the connection is awaited
    };

    Listener() = default;
    Status listen_at(const Address& address);
    void watch(int descriptor, uint64_t key, short events, bool fresh);
    void accept_some(int listener, int64_t now);
    bool make_room(int64_t now, bool must);
    void pause(int64_t now);
    void rest(int64_t now);
    void advance(uint64_t key, int64_t now);
    void add_pending(Unauthenticated& connection);
    void remove(uint64_t key);

    std::vector<Address> addresses_;
    mutable std::mutex mutex_;
    Fd epoll_, timer_, pending_event_;
    std::vector<Fd> listeners_;
    std::vector<uint16_t> extra_ports_;
    int exhausted_error_ = 0;  // errno of the last accept that found no descriptor, and since when
    int64_t exhausted_since_us_ = 0;
    bool paused_ = false;                                  // nothing is accepted for a moment
    bool alarmed_ = false;                                 // the timer runs
    std::map<uint64_t, Unauthenticated> unauthenticated_;  // by key; keys grow, so the oldest is first
    uint64_t next_key_;
    PendingConnections connections_;
    struct {
        RateLimit exhausted, impostors, noises, refusals;
    } limits_;
};

}  // namespace weft::internal::net
