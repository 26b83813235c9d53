#include "transports/tcp/tcp_connection.hpp"

#include <sys/socket.h>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace weft::internal::tcp {

static constexpr int64_t retry_us = 20'000;

TcpConnection::TcpConnection(const ConnectionOptions& options, std::shared_ptr<net::Listener> listener, uint64_t token)
    : options_(options), listener_(std::move(listener)), token_(token) {
    listener_->register_identity(*options_.identity);
}

TcpConnection::TcpConnection(const ConnectionOptions& options) : options_(options) {}

TcpConnection::~TcpConnection() {
    if (!listener_) return;
    while (listener_->accept_for(options_.identity->name, net::data, token_)) {
    }
    listener_->unregister_identity(options_.identity->name);
}

void TcpConnection::set_target(const ListenAddress& listen_address, const std::vector<net::Address>& sources,
                               int stripes) {
    stripe_sockets_ = std::vector<StripeSocket>(size_t(stripes));
    for (int index = 0; index < stripes; ++index) {
        std::vector<net::Address> targets = listen_address.addresses;
        std::optional<net::Address> source;
        if (stripes > 1) {
            std::erase_if(targets, [&](const net::Address& address) { return address.interface() != index; });
            for (const net::Address& own : sources)
                for (const net::Address& target : targets)
                    if (!source && own.interface() == index && own.family() == target.family()) source = own;
        }
        StripeSocket& stripe_socket = stripe_sockets_[size_t(index)];
        stripe_socket.purpose = {net::data, stripe_detail(index, stripes), listen_address.token};
        stripe_socket.target = listen_address.target();
        stripe_socket.targets = std::move(targets);
        stripe_socket.source = source;
        stripe_socket.outgoing.emplace(*options_.identity, stripe_socket.purpose, stripe_socket.targets,
                                       stripe_socket.source, stripe_socket.target);
    }
}

Status TcpConnection::connect() {
    if (connected_) return ok();
    if (failure_) failure_ = listener_ ? accept_stripes() : connect_as_client();
    return failure_.copy();  // a failure is final
}

Status TcpConnection::connect_as_client() {
    if (stripe_sockets_.empty()) return ok();  // set_target() was not called yet
    bool missing = false;
    for (StripeSocket& stripe_socket : stripe_sockets_) {
        if (!stripe_socket.outgoing) continue;
        if (stripe_socket.retry_at_us != 0) {
            missing = true;
            if (now_us() < stripe_socket.retry_at_us) continue;
            stripe_socket.retry_at_us = 0;
            stripe_socket.outgoing.emplace(*options_.identity, stripe_socket.purpose, stripe_socket.targets,
                                           stripe_socket.source, stripe_socket.target);
        }
        auto socket = stripe_socket.outgoing->advance();
        // This end advances only inside Weft's calls, so the listener may have closed the connection after its deadline.
        // Try again: if the other end has ended, the next attempt is refused.
        if (!socket && stripe_socket.outgoing->closed_early()) {
            stripe_socket.retry_at_us = now_us() + retry_us;
            missing = true;
            continue;
        }
        if (!socket)
            return fail(socket.status(), "rank {} has no connection to rank {}: {}", options_.self, options_.peer,
                        socket.status().sentence());
        if (!*socket) {
            missing = true;
            continue;
        }
        stripe_socket.socket = std::move(**socket);
        stripe_socket.watched.emplace(stripe_socket.socket.number());
        stripe_socket.peer = stripe_socket.outgoing->peer();
        stripe_socket.outgoing.reset();
        WEFT_LOG_RANK(options_.self, info, net, "channel {} connects to rank {} over tcp at {}{}", options_.channel,
                      options_.peer, stripe_socket.peer.text(),
                      stripe_sockets_.size() > 1 ? fmt::format(", one of {} stripes", stripe_sockets_.size()) : "");
    }
    connected_ = !missing;
    return ok();
}

Status TcpConnection::accept_stripes() {
    WEFT_TRY(listener_->progress());
    while (missing_ > 0) {
        auto accepted = listener_->accept_for(options_.identity->name, net::data, token_);
        if (!accepted) break;
        const int stripe = stripe_of(accepted->purpose.detail), stripes = stripes_of(accepted->purpose.detail);
        if (stripe_sockets_.empty() && stripes >= 1 && stripes <= stripes_max) {
            stripe_sockets_ = std::vector<StripeSocket>(size_t(stripes));
            missing_ = size_t(stripes);
        }
        if (size_t(stripes) != stripe_sockets_.size() || stripe >= stripes || stripe_sockets_[size_t(stripe)].socket)
            return fail(error::internal_damaged,
                        "rank {} got stripe {} of {} from rank {} at {}: it has that stripe, or the numbers are wrong",
                        options_.self, stripe, stripes, options_.peer, accepted->peer.text())
                .about({.rank = options_.peer, .peer = options_.self});
        stripe_sockets_[size_t(stripe)].socket = std::move(accepted->socket);
        stripe_sockets_[size_t(stripe)].watched.emplace(stripe_sockets_[size_t(stripe)].socket.number());
        stripe_sockets_[size_t(stripe)].peer = accepted->peer;
        --missing_;
    }
    connected_ = missing_ == 0;
    if (connected_) return ok();
    if (const Status trouble = listener_->trouble(options_.identity->name); !trouble)
        return fail(trouble, "rank {} waits for rank {}: {}", options_.self, options_.peer, trouble.sentence());
    return ok();
}

void TcpConnection::add_descriptors(std::vector<pollfd>& list) const {
    if (listener_) {
        list.push_back({listener_->descriptor(), POLLIN, 0});
        // Another thread may accept the connection while this one sleeps.
        list.push_back({listener_->pending_descriptor(options_.identity->name), POLLIN, 0});
        return;
    }
    for (const StripeSocket& stripe_socket : stripe_sockets_)
        if (stripe_socket.outgoing && stripe_socket.retry_at_us == 0) stripe_socket.outgoing->add_descriptors(list);
}

void TcpConnection::end_sending() {
    if (!connected_) return;
    for (const StripeSocket& stripe_socket : stripe_sockets_) (void)shutdown(stripe_socket.socket.number(), SHUT_WR);
}

}  // namespace weft::internal::tcp
