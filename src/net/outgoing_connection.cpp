#include "src/net/outgoing_connection.hpp"

#include <net/if.h>

#include <cerrno>

#include "src/base/clock.hpp"
#include "src/base/options.hpp"
#include "src/net/socket.hpp"

namespace weft::internal::net {

namespace {

// Silence after which the next address is tried too: of a network (RFC 8305), and of a process that has accepted.
constexpr int64_t next_after_us = 250'000;
constexpr int64_t next_after_accepted_us = 1'000'000;

bool is_wanted(int family) {
    const std::string& wanted = options().socket_family;
    return wanted.empty() || family == (wanted == "AF_INET" ? AF_INET : AF_INET6);
}

}  // namespace

OutgoingConnection::OutgoingConnection(const Identity& identity, const Purpose& purpose, std::vector<Address> addresses,
                                       std::optional<Address> source, const TargetProcess& target)
    : identity_(identity), purpose_(purpose), target_(target), source_(std::move(source)) {
    if (addresses.size() > 1) addresses = call_order(std::move(addresses), addresses_of_this_host());
    std::vector<Address> own;
    for (const Address& address : addresses) {
        if (source_ && address.family() != source_->family()) continue;
        if (!is_wanted(address.family())) continue;
        if (!address.is_link_local() || address.scope() != 0) {
            attempts_.emplace_back(address);
            continue;
        }
        // The address does not say which of our interfaces leads there: every one with a link-local address may.
        if (own.empty())
            if (auto found = local_addresses()) own = std::move(*found);
        for (const Address& mine : own)
            if (mine.is_link_local()) attempts_.emplace_back(address.with_scope(mine.scope()));
    }
    if (!attempts_.empty()) peer_ = attempts_[0].address;
    if (attempts_.empty())
        for (const Address& address : addresses) why_ += fmt::format("{}{}", why_.empty() ? "" : ", ", address.text());
    if (attempts_.empty())
        why_ = fmt::format(
            "none of its addresses ({}) is of a family that is used here{}{}", why_.empty() ? "it has none" : why_,
            source_ ? ": from " + source_->text() : "",
            options().socket_family.empty()
                ? ""
                : fmt::format(": {} is {}", options().variable(OptionIndex::socket_family), options().socket_family));
}

void OutgoingConnection::give_up(Attempt& attempt, const Status& why) {
    const bool misdirected = attempt.handshake && attempt.handshake->misdirected();
    misdirected_ |= misdirected;
    given_up_otherwise_ |= !misdirected;
    error_ = error_ == ErrorId::none || error_ == why.id() ? why.id() : error::tcp_refused;
    why_ += fmt::format("{}{}: {}", why_.empty() ? "" : "; ", attempt.address.text(), why.sentence());
    if (misdirected)
        for (const InterfaceAddress& own : addresses_of_this_host())
            if (own.address.with_scope(0) == attempt.address.with_port(0).with_scope(0))
                why_ += fmt::format(", for this host has that address too, on {}", own.interface);
    peer_ = attempt.address;
    attempts_.erase(attempts_.begin() + (&attempt - attempts_.data()));
}

Status OutgoingConnection::failed_to_connect(int error) {
    refused_ |= error == ECONNREFUSED;
    failed_otherwise_ |= error != ECONNREFUSED && error != ENETUNREACH;
    return fail(error::tcp_refused, "{}", errno_text(error));
}

Status OutgoingConnection::start(Attempt& attempt, int64_t now) {
    auto socket = open_stream(attempt.address.family());
    if (!socket) return failed_otherwise_ = true, socket.take_status();
    attempt.started = true;
    attempt.since_us = now;
    attempt.socket = std::move(*socket);
    if (source_) {
        const Address from = source_->with_port(0);
        if (bind(attempt.socket.number(), from.raw(), from.raw_bytes()) != 0)
            return fail(error::system_call, "no connection from {}: {}", from.text(), errno_text(errno));
    }
    if (connect(attempt.socket.number(), attempt.address.raw(), attempt.address.raw_bytes()) == 0) {
        attempt.connected = true;
        attempt.connected_us = now;
    } else if (errno != EINPROGRESS && errno != EINTR) {
        give_up(attempt, failed_to_connect(errno));
    }
    return ok();
}

// True: connected and welcome. A failure concerns this attempt only.
Result<bool> OutgoingConnection::advance(Attempt& attempt) {
    if (!attempt.connected) {
        pollfd state{attempt.socket.number(), POLLOUT, 0};
        if (poll(&state, 1, 0) <= 0) return false;
        int error = 0;
        socklen_t bytes = sizeof error;
        if (getsockopt(attempt.socket.number(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
        if (error != 0) return failed_to_connect(error);
        attempt.connected = true;
        attempt.connected_us = now_us();
    }
    if (!attempt.handshake) attempt.handshake.emplace(identity_, purpose_, target_);
    return attempt.handshake->advance(attempt.socket.number());
}

// The next address is tried when those before it have failed or kept silent.
Status OutgoingConnection::start_more(int64_t now) {
    for (size_t i = 0; i < attempts_.size();) {
        Attempt& attempt = attempts_[i];
        if (attempt.started) {
            if (now - attempt.since_us < (attempt.connected ? next_after_accepted_us : next_after_us)) return ok();
            ++i;
            continue;
        }
        const size_t before = attempts_.size();
        WEFT_TRY(start(attempt, now));
        if (attempts_.size() == before) return ok();  // else it failed at once, and another is in its place
    }
    return ok();
}

Result<std::optional<Fd>> OutgoingConnection::advance() {
    const int64_t now = now_us();
    for (;;) {
        if (!chosen_) WEFT_TRY(start_more(now));
        bool failed = false;
        for (size_t i = 0; i < attempts_.size();) {
            Attempt& attempt = attempts_[i];
            if (!attempt.started) break;
            auto done = advance(attempt);
            const bool proven = attempt.handshake && attempt.handshake->proven();
            if (proven || attempt.connected) peer_ = attempt.address;
            if (done && *done) return std::optional(std::move(attempt.socket));
            if (!done && attempt.connected && attempt.handshake && !attempt.handshake->answered()) closed_early_ = true;
            if (!done && attempt.handshake && attempt.handshake->unknown()) unknown_ = true;
            // A refusal by a process that knows the secret is final. Otherwise the next address may be the right one.
            if (!done && proven) return fail(done.status(), "{}: {}", attempt.address.text(), done.status().sentence());
            if (!done) {
                failed_otherwise_ |= attempt.connected;
                give_up(attempt, done.status());
                failed = true;
                continue;
            }
            if (proven && !chosen_) {
                chosen_ = true;
                Attempt winner = std::move(attempt);
                attempts_.clear();
                attempts_.push_back(std::move(winner));
                return std::optional<Fd>();
            }
            ++i;
        }
        if (attempts_.empty()) {
            // All addresses failed alike, by the network or the process there; otherwise tcp.refused.
            const bool alike = error_ != ErrorId::none && row_of(error_).code == weftRemoteError;
            return fail(
                alike ? error_ : error::tcp_refused, "{}{}", why_,
                misdirected_ ? "; set WEFT_SOCKET_IFNAME on all ranks to the interface that joins the hosts" : "");
        }
        if (!failed) return std::optional<Fd>();
    }
}

std::string OutgoingConnection::pending() const {
    std::string text = why_;
    const int64_t now = now_us();
    for (const Attempt& attempt : attempts_) {
        if (!attempt.started) continue;
        if (!text.empty()) text += "; ";
        text += attempt.address.text();
        text += attempt.connected
                    ? fmt::format(" accepted the connection {} ms ago and has not answered",
                                  (now - attempt.connected_us) / 1000)
                    : fmt::format(" has not accepted the connection for {} ms", (now - attempt.since_us) / 1000);
    }
    return text;
}

void OutgoingConnection::add_descriptors(std::vector<pollfd>& list) const {
    for (const Attempt& attempt : attempts_)
        if (attempt.started)
            list.push_back(
                {attempt.socket.number(), attempt.handshake ? attempt.handshake->events() : short(POLLOUT), 0});
}

}  // namespace weft::internal::net
