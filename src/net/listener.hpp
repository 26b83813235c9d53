// listener.hpp: the one place where a process lets connections in. Who calls proves the secret of a communicator that was
// registrations and says what for; then the connection is pending until the part of Weft that expects it claims it. Strangers
// cannot get in, nor keep others out.
#pragma once
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/base/fd.hpp"
#include "src/net/address.hpp"
#include "src/net/handshake.hpp"

namespace weft::internal::net {

// A connection that proved its communicator's secret.
struct AcceptedConnection {
    Fd socket;
    Purpose purpose;
    Address peer;
};

// Says a thing at most once in ten seconds, and how often it was kept back.
class RateLimit {
  public:
    // Nothing: not now. Else how many were kept back since the last time.
    std::optional<int> now(int64_t now_us);

  private:
    int64_t next_us_ = 0;
    int suppressed_ = 0;
};

// Thread-safe. Sockets of a parent process are not used after a fork: the child's of_process() opens a new listener.
class Listener {
  public:
    // Unauthenticated connections held at once, and for how long; a legitimate one needs a round trip.
    static constexpr size_t unauthenticated_max = 512;
    static constexpr int64_t handshake_timeout_us = 10'000'000;

    // The process's listener, opened when first asked for, closed with its last owner.
    static Result<std::shared_ptr<Listener>> of_process();
    // One that listens on a free port of each address; for of_process() and tests.
    static Result<std::shared_ptr<Listener>> open(const std::vector<Address>& addresses, const std::string& port_range);
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    // With the port, best first.
    const std::vector<Address>& addresses() const { return addresses_; }
    // Listens on this port of all interfaces as well: for a root whose place was agreed before. Twice is once.
    Status listen_also(uint16_t port);

    // Accepts connections of a communicator. Counted: registered twice is unregistered twice; the last dismissal drops what is
    // pending. `root`: the communicator's ranks check in at this process.
    void register_identity(const Identity& identity, bool root = false);
    void unregister_identity(const IdName& name, bool root = false);
    // The oldest pending connection of this kind, and token if one is given.
    std::optional<AcceptedConnection> accept_for(const IdName& name, uint32_t kind, std::optional<uint64_t> token = {});
    // weftMismatch if someone who knows the secret was refused because of its version; names both and the address.
    // weftSystemError if for seconds nobody could be let in, for want of descriptors.
    Status trouble(const IdName& name) const;

    // Accepts, shakes hands, parks. Never blocks, not even on another thread that does it.
    Status progress();
    // An epoll descriptor: readable when progress() has something to do, also when only time has passed.
    int descriptor() const { return epoll_.number(); }
    // Readable as long as something is pending for this communicator; -1: it was not registered. Valid until its last
    // dismissal. For who sleeps until something can be claimed while another thread calls progress().
    int pending_descriptor(const IdName& name);
    // Any thread may be the one whose progress() parks what another waits for. Readable since the first connection was
    // pending, and *edge-triggered* (EPOLLET) once more for each: never read.
    int pending_event_descriptor() const { return pending_event_.number(); }

  private:
    struct Unauthenticated {
        Fd socket;
        Address peer;
        ServerHandshake handshake;
        int64_t since_us;
        short events = 0;      // polled for
        bool leaving = false;  // was told why not: only its end is waited for
    };
    struct Member {
        Identity identity;
        int registrations = 0;
        int roots = 0;  // of them
        std::list<AcceptedConnection> pending;
        Fd signal;  // eventfd, made when first asked for
        std::string trouble;
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
    void signal(Member& member);

    std::vector<Address> addresses_;
    mutable std::mutex mutex_;
    Fd epoll_, timer_, pending_event_;
    std::vector<Fd> listeners_;
    std::vector<uint16_t> extra_ports_;
    int exhausted_error_ = 0;  // of the last accept, and since when
    int64_t exhausted_since_us_ = 0;
    bool paused_ = false;                                  // nothing is accepted for a moment
    bool alarmed_ = false;                                 // the timer runs
    std::map<uint64_t, Unauthenticated> unauthenticated_;  // by key, which grows: the oldest first
    uint64_t next_key_;
    std::map<IdName, Member> members_;
    RateLimit exhausted_, impostors_, noises_, refusals_;
};

// A port, or first-last. weftInvalidArgument says what is expected.
Result<std::pair<uint16_t, uint16_t>> parse_port_range(const std::string& text);

}  // namespace weft::internal::net
