#include "src/net/listener.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/net/socket.hpp"

namespace weft::internal::net {

namespace {

constexpr int accepted_at_once = 64;  // so that a step ends even if connections come very fast
constexpr uint64_t timer_key = ~uint64_t(0);
constexpr uint64_t first_connection_key = 1000;  // keys below belong to listeners
constexpr int64_t pause_us = 50'000;             // if there is no room, nothing is accepted for this long
constexpr int64_t silent_for_us = 100'000;       // after this long a silent connection may be dropped for others
constexpr int64_t half_done_for_us = 2'000'000;  // and one that has not finished its handshake
constexpr int64_t exhausted_for_us = 3'000'000;  // after this long without descriptors trouble() reports it

}  // namespace

Result<std::shared_ptr<Listener>> Listener::of_process() {
    return shared_by_process<Listener>([]() -> Result<std::shared_ptr<Listener>> {
        auto addresses = local_addresses();
        if (!addresses) return addresses.take_status();
        // Rank 0's process listens at the root's port, too. It need not be the first process of its host.
        return open(*addresses, options().port_range, options().root_port);
    });
}

Result<std::shared_ptr<Listener>> Listener::open(const std::vector<Address>& addresses, const std::string& port_range,
                                                 int last_port) {
    auto ports = ports_of_range(port_range, last_port);
    if (!ports) return ports.take_status();
    std::shared_ptr<Listener> listener(new Listener);
    listener->next_key_ = first_connection_key;
    listener->epoll_ = Fd::epoll();
    listener->timer_ = Fd::timer();
    listener->pending_event_ = Fd::event();
    if (!listener->epoll_ || !listener->timer_ || !listener->pending_event_)
        return fail(error::system_descriptors, "no descriptor is left for the process's listener: {}",
                    no_descriptor_text(errno));
    listener->watch(listener->timer_.number(), timer_key, POLLIN, true);
    Status last;
    for (const Address& address : addresses)
        for (const uint16_t port : *ports) {
            last = listener->listen_at(address.with_port(port));
            if (last) break;
            if (port == ports->back()) WEFT_LOG(info, net, "{}", last.text());
        }
    if (listener->addresses_.empty()) {
        if (last) return fail(error::internal_state, "there is no address to listen at");
        if (port_range.empty()) return last;
        return fail(last, "no port of WEFT_PORT_RANGE {} is free to listen on; the last one: {}", port_range,
                    last.sentence());
    }
    WEFT_LOG(
        info, net, "this process can be reached at {}{}", listener->addresses_[0].text(),
        listener->addresses_.size() > 1 ? fmt::format(" and {} more addresses", listener->addresses_.size() - 1) : "");
    return listener;
}

Status Listener::listen_at(const Address& address) {
    auto listener = open_listener(address);
    if (!listener) return listener.take_status();
    watch(listener->number(), listeners_.size(), POLLIN, true);
    addresses_.push_back(address.with_port(local_address(listener->number()).port()));
    listeners_.push_back(std::move(*listener));
    return ok();
}

Status Listener::listen_also(uint16_t port) {
    std::lock_guard lock(mutex_);
    if (std::find(extra_ports_.begin(), extra_ports_.end(), port) != extra_ports_.end()) return ok();
    const auto listens = [&](const Address& address) { return address.port() == port; };
    if (std::all_of(addresses_.begin(), addresses_.end(), listens)) return ok();
    auto opened = open_listeners(port);
    if (!opened) return opened.take_status();
    for (Fd& listener : *opened) {
        watch(listener.number(), listeners_.size(), POLLIN, true);
        listeners_.push_back(std::move(listener));
    }
    extra_ports_.push_back(port);
    return ok();
}

void Listener::watch(int descriptor, uint64_t key, short events, bool fresh) {
    epoll_event event{};
    static_assert(POLLIN == int(EPOLLIN) && POLLOUT == int(EPOLLOUT));
    event.events = uint32_t(events);
    event.data.u64 = key;
    (void)epoll_ctl(epoll_.number(), fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, descriptor, &event);
}

void Listener::register_identity(const Identity& identity, bool root) {
    std::lock_guard lock(mutex_);
    connections_.register_identity(identity, root);
}

void Listener::unregister_identity(const IdName& name, bool root) {
    std::lock_guard lock(mutex_);
    connections_.unregister_identity(name, root);
}

std::optional<AcceptedConnection> Listener::accept_for(const IdName& name, uint32_t kind,
                                                       std::optional<uint64_t> token) {
    std::lock_guard lock(mutex_);
    return connections_.take(name, kind, token);
}

Status Listener::trouble(const IdName& name) const {
    std::lock_guard lock(mutex_);
    if (exhausted_error_ != 0 && now_us() - exhausted_since_us_ > exhausted_for_us)
        return fail(error::system_descriptors, "connections wait to be accepted: {}",
                    no_descriptor_text(exhausted_error_));
    return connections_.trouble(name);
}

int Listener::pending_descriptor(const IdName& name) {
    std::lock_guard lock(mutex_);
    return connections_.descriptor(name);
}

void Listener::remove(uint64_t key) {
    const auto found = unauthenticated_.find(key);
    // Closing alone does not remove it: a forked child may hold the socket too.
    (void)epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, found->second.socket.number(), nullptr);
    unauthenticated_.erase(found);
}

void Listener::add_pending(Unauthenticated& connection) {
    (void)epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, connection.socket.number(), nullptr);
    connections_.add(connection.handshake.name(),
                     {std::move(connection.socket), connection.handshake.purpose(), connection.peer});
    ring_event(pending_event_);
}

void Listener::advance(uint64_t key, int64_t now) {
    const auto found = unauthenticated_.find(key);
    if (found == unauthenticated_.end()) return;
    Unauthenticated& connection = found->second;
    if (connection.leaving) {
        char rest[256];
        bool closed = false;
        const auto got = read_some(connection.socket.number(), rest, sizeof rest, &closed);
        if (!got) remove(key);
        return;
    }
    const auto find = [this](const IdName& name) { return connections_.identity(name); };
    const auto roots = [this](const IdName& name) { return connections_.is_root(name); };
    using Outcome = ServerHandshake::Outcome;
    const Outcome outcome = connection.handshake.advance(connection.socket.number(), find, roots);
    switch (outcome) {
        case Outcome::pending:
            if (const short events = connection.handshake.events(); events != connection.events) {
                watch(connection.socket.number(), key, events, false);
                connection.events = events;
            }
            return;
        case Outcome::welcome:
            if (find(connection.handshake.name())) {
                add_pending(connection);
                unauthenticated_.erase(found);
                return;
            }
            break;
        case Outcome::outdated:
        case Outcome::refused: {
            const std::string sentence = fmt::format("{}: {}", connection.peer.text(), connection.handshake.sentence());
            if (outcome == Outcome::outdated) connections_.set_trouble(connection.handshake.name(), sentence);
            if (const auto suppressed = limits_.refusals.now(now))
                WEFT_LOG(info, net, "refused {} ({} others before)", sentence, *suppressed);
            // If the socket were closed now with unread data, the refusal could be lost.
            shutdown(connection.socket.number(), SHUT_WR);
            connection.leaving = true;
            watch(connection.socket.number(), key, POLLIN, false);
            return;
        }
        case Outcome::impostor:
            if (const auto suppressed = limits_.impostors.now(now))
                WEFT_LOG(warn, net,
                         "{} was turned away: it knows a communicator of this process but not its secret ({} others "
                         "before)",
                         connection.peer.text(), *suppressed);
            break;
        case Outcome::noise:
            if (const auto suppressed = limits_.noises.now(now))
                WEFT_LOG(info, net, "{} was turned away: it does not speak Weft's handshake ({} others before)",
                         connection.peer.text(), *suppressed);
            break;
        case Outcome::broken: break;
    }
    remove(key);
}

// Drops the oldest connection that has had enough time. True: there is room.
bool Listener::make_room(int64_t now, bool must) {
    if (!must && unauthenticated_.size() < unauthenticated_max) return true;
    for (const auto& [key, connection] : unauthenticated_)
        if (connection.handshake.silent() && now - connection.since_us > silent_for_us) {
            remove(key);
            return true;
        }
    for (const auto& [key, connection] : unauthenticated_)
        if (now - connection.since_us > half_done_for_us) {
            remove(key);
            return true;
        }
    return false;
}

void Listener::pause(int64_t now) {
    paused_ = true;
    for (size_t i = 0; i < listeners_.size(); ++i) watch(listeners_[i].number(), i, 0, false);
    rest(now);
}

// Sets the timer to the next moment at which work is due without an event of a socket.
void Listener::rest(int64_t now) {
    int64_t due = 0;
    if (!unauthenticated_.empty()) due = unauthenticated_.begin()->second.since_us + handshake_timeout_us;
    if (paused_) due = now + pause_us;
    itimerspec when{};
    if (due != 0) {
        due = std::max(due, now + 1000);
        when.it_value = {due / 1'000'000, due % 1'000'000 * 1000};
    }
    (void)timerfd_settime(timer_.number(), TFD_TIMER_ABSTIME, &when, nullptr);
    alarmed_ = due != 0;
}

void Listener::accept_some(int listener, int64_t now) {
    for (int accepted = 0; accepted < accepted_at_once && !paused_; ++accepted) {
        if (!make_room(now, false)) return pause(now);
        sockaddr_storage storage{};
        socklen_t bytes = sizeof storage;
        Fd socket = Fd::accept(listener, reinterpret_cast<sockaddr*>(&storage), &bytes);
        if (!socket) {
            const int error = errno;
            if (error == EINTR || error == ECONNABORTED) continue;
            if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) {
                exhausted_error_ = 0;
                return;
            }
            if (make_room(now, true)) continue;
            if (std::exchange(exhausted_error_, error) == 0) exhausted_since_us_ = now;
            if (const auto suppressed = limits_.exhausted.now(now))
                WEFT_LOG(warn, net, "connections wait to be accepted: {}", no_descriptor_text(error));
            return pause(now);
        }
        exhausted_error_ = 0;
        const uint64_t key = next_key_++;
        const Address peer = Address::of(reinterpret_cast<sockaddr*>(&storage)).value_or(Address());
        watch(socket.number(), key, POLLIN, true);
        unauthenticated_.emplace(key, Unauthenticated{std::move(socket), peer, {}, now, POLLIN, false});
        if (unauthenticated_.size() == 1) rest(now);
        advance(key, now);
    }
}

Status Listener::progress() {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return ok();
    epoll_event events[64];
    for (int round = 0; round < 8; ++round) {
        const int count = epoll_wait(epoll_.number(), events, 64, 0);
        if (count < 0 && (errno == EBADF || errno == EINVAL))
            return fail(error::usage_closed_descriptor, "{}", lost_descriptor_text);
        if (count < 0 && errno != EINTR)
            return fail(error::system_call, "the process's listener failed: {}", errno_text(errno));
        if (count <= 0) return ok();
        const int64_t now = now_us();
        for (int i = 0; i < count; ++i) {
            const uint64_t key = events[i].data.u64;
            if (key == timer_key) {
                drain_event(timer_);
                while (!unauthenticated_.empty() &&
                       now - unauthenticated_.begin()->second.since_us >= handshake_timeout_us)
                    remove(unauthenticated_.begin()->first);
                if (std::exchange(paused_, false))
                    for (size_t each = 0; each < listeners_.size(); ++each)
                        watch(listeners_[each].number(), each, POLLIN, false);
                rest(now);
            } else if (key < first_connection_key) {
                if (!paused_) accept_some(listeners_[key].number(), now);
            } else {
                advance(key, now);
            }
        }
        if (alarmed_ && unauthenticated_.empty() && !paused_) rest(now);
        if (count < 64) return ok();
    }
    return ok();
}

}  // namespace weft::internal::net
