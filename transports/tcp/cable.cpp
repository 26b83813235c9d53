#include "transports/tcp/cable.hpp"

#include <sys/socket.h>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace weft::internal::tcp {

static constexpr int64_t call_again_us = 20'000;

Cable::Cable(const ConnectionOptions& options, std::shared_ptr<net::Listener> listener, uint64_t token)
    : options_(options), listener_(std::move(listener)), token_(token) {
    listener_->register_identity(*options_.identity);
}

Cable::Cable(const ConnectionOptions& options) : options_(options) {}

Cable::~Cable() {
    if (!listener_) return;
    while (listener_->accept_for(options_.identity->name, net::data, token_)) {
    }
    listener_->unregister_identity(options_.identity->name);
}

void Cable::dial(const Place& place, const std::vector<net::Address>& sources, int stripes) {
    wires_ = std::vector<Wire>(size_t(stripes));
    for (int index = 0; index < stripes; ++index) {
        std::vector<net::Address> targets = place.addresses;
        std::optional<net::Address> source;
        if (stripes > 1) {
            std::erase_if(targets, [&](const net::Address& address) { return address.interface() != index; });
            for (const net::Address& own : sources)
                for (const net::Address& target : targets)
                    if (!source && own.interface() == index && own.family() == target.family()) source = own;
        }
        Wire& wire = wires_[size_t(index)];
        wire.purpose = {net::data, stripe_detail(index, stripes), place.token};
        wire.target = place.target();
        wire.targets = std::move(targets);
        wire.source = source;
        wire.call.emplace(*options_.identity, wire.purpose, wire.targets, wire.source, wire.target);
    }
}

Status Cable::connect() {
    if (connected_) return ok();
    if (failure_ == weftSuccess) {
        const Status step = listener_ ? accept() : call();
        if (step) return ok();
        failure_ = step.code();
        why_ = step.sentence();
    }
    return fail(failure_, "{}", why_);  // for good
}

Status Cable::call() {
    if (wires_.empty()) return ok();  // nobody has said target to call yet
    bool missing = false;
    for (Wire& wire : wires_) {
        if (!wire.call) continue;
        if (wire.again_us != 0) {
            missing = true;
            if (now_us() < wire.again_us) continue;
            wire.again_us = 0;
            wire.call.emplace(*options_.identity, wire.purpose, wire.targets, wire.source, wire.target);
        }
        auto socket = wire.call->advance();
        // We step a call only while we are inside Weft, and a listener waits for nobody for long. If the other end is gone
        // for good, the next call is refused.
        if (!socket && wire.call->closed_early()) {
            wire.again_us = now_us() + call_again_us;
            missing = true;
            continue;
        }
        if (!socket)
            return fail(socket.status().code(), "rank {} has no connection to rank {}: {}", options_.self,
                        options_.peer, socket.status().sentence());
        if (!*socket) {
            missing = true;
            continue;
        }
        wire.socket = std::move(**socket);
        wire.watched.emplace(wire.socket.number());
        wire.peer = wire.call->peer();
        wire.call.reset();
        WEFT_LOG_RANK(options_.self, info, net, "channel {} connects to rank {} over tcp at {}{}", options_.channel,
                      options_.peer, wire.peer.text(),
                      wires_.size() > 1 ? fmt::format(", one of {} stripes", wires_.size()) : "");
    }
    connected_ = !missing;
    return ok();
}

Status Cable::accept() {
    WEFT_TRY(listener_->progress());
    while (missing_ > 0) {
        auto accepted = listener_->accept_for(options_.identity->name, net::data, token_);
        if (!accepted) break;
        const int stripe = stripe_of(accepted->purpose.detail), stripes = stripes_of(accepted->purpose.detail);
        if (wires_.empty() && stripes >= 1 && stripes <= stripes_max) {
            wires_ = std::vector<Wire>(size_t(stripes));
            missing_ = size_t(stripes);
        }
        if (size_t(stripes) != wires_.size() || stripe >= stripes || wires_[size_t(stripe)].socket)
            return fail(weftInternalError, "rank {} got stripe {} of {} from rank {} at {}, which cannot be",
                        options_.self, stripe, stripes, options_.peer, accepted->peer.text());
        wires_[size_t(stripe)].socket = std::move(accepted->socket);
        wires_[size_t(stripe)].watched.emplace(wires_[size_t(stripe)].socket.number());
        wires_[size_t(stripe)].peer = accepted->peer;
        --missing_;
    }
    connected_ = missing_ == 0;
    if (connected_) return ok();
    if (const Status trouble = listener_->trouble(options_.identity->name); !trouble)
        return fail(trouble.code(), "rank {} waits for rank {}: {}", options_.self, options_.peer, trouble.sentence());
    return ok();
}

void Cable::add_descriptors(std::vector<pollfd>& list) const {
    if (listener_) {
        list.push_back({listener_->descriptor(), POLLIN, 0});
        // Another thread may take the connection in while we sleep.
        list.push_back({listener_->pending_descriptor(options_.identity->name), POLLIN, 0});
        return;
    }
    for (const Wire& wire : wires_)
        if (wire.call && wire.again_us == 0) wire.call->add_descriptors(list);
}

void Cable::end_sending() {
    if (!connected_) return;
    for (const Wire& wire : wires_) (void)shutdown(wire.socket.number(), SHUT_WR);
}

}  // namespace weft::internal::tcp
