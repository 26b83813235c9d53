#include "src/control/parent_link.hpp"

namespace weft::internal {

namespace {
constexpr int64_t accept_patience_us = 3'000'000;  // for the parent to accept
}  // namespace

ParentLink::ParentLink(Service& service, const net::Identity& identity, const Placement& placement,
                       CheckInTraffic& traffic, Handlers handlers)
    : service_(&service), traffic_(&traffic), handlers_(std::move(handlers)) {
    connect_ = std::make_unique<AsyncConnect>(
        service, identity, net::Purpose{net::relay, uint32_t(placement.place), uint64_t(placement.parent)},
        net::TargetProcess{.process = placement.process}, placement.addresses, [this](Result<Fd> socket) {
            if (socket) return attach(std::move(*socket));
            give_up(socket.status().sentence());
        });
    timer_ = service.after(accept_patience_us, [this] {
        const std::string pending = connect_->pending();
        give_up(pending.empty() ? "no connection" : pending);
    });
}

ParentLink::~ParentLink() { service_->cancel(timer_); }

void ParentLink::part() {
    if (link_) link_->part();
}

void ParentLink::attach(Fd socket) {
    connect_.reset();
    service_->cancel(timer_);
    ++traffic_->connections;
    link_ = std::make_unique<ControlConnection>(
        *service_, std::move(socket),
        [this](uint32_t kind, ByteReader& content) { on_frame(CheckInFrame(kind), content); },
        [this](const Status& why) {
            const auto on_end = handlers_.on_end;
            link_.reset();
            on_end(why);
        });
    traffic_->sent(CheckInFrame::attach, 0);
    link_->send(uint32_t(CheckInFrame::attach));
}

void ParentLink::give_up(const std::string& why) {
    connect_.reset();
    service_->cancel(timer_);
    const auto on_unreachable = handlers_.on_unreachable;
    on_unreachable(why);
}

void ParentLink::on_frame(CheckInFrame kind, ByteReader& content) {
    if (kind != CheckInFrame::taken) {
        const auto on_frame = handlers_.on_frame;
        return on_frame(kind, content);
    }
    traffic_->received(kind, content.left());
    if (!std::exchange(attached_, true)) handlers_.on_attached();
}

}  // namespace weft::internal
