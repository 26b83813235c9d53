#include "src/control/check_in_relay.hpp"

#include "src/base/log.hpp"

namespace weft::internal {

namespace {
// Ranks of many hosts join at about the same time: a leader passes their reports up together.
constexpr int64_t reports_apart_us = 5'000;
}  // namespace

CheckInRelay::CheckInRelay(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity, Up up,
                           CheckInTraffic& traffic)
    : dispatcher_(std::move(dispatcher)), identity_(identity), up_(std::move(up)), traffic_(&traffic) {}

void CheckInRelay::open(int place) {
    place_ = place;
    dispatcher_->expect(identity_.name, net::relay, uint64_t(place),
                        [this](net::AcceptedConnection accepted) { welcome(std::move(accepted)); });
}

void CheckInRelay::end() {
    if (place_ != 0) dispatcher_->stop_expecting(identity_.name, net::relay, uint64_t(place_));
    place_ = 0;
    dispatcher_->service().cancel(timer_);
    for (auto& [place, child] : children_) child.link->part();
    children_.clear();
}

void CheckInRelay::welcome(net::AcceptedConnection accepted) {
    const int place = int(accepted.purpose.detail);
    if (place <= 0 || CheckInTree::parent(place) != place_) return;
    ++traffic_->connections;
    Child& child = children_[place];
    child.link = std::make_unique<ControlConnection>(
        dispatcher_->service(), std::move(accepted.socket),
        [this, place](uint32_t kind, ByteReader& content) { on_frame(place, CheckInFrame(kind), content); },
        [this, place](const Status& why) { on_end(place, why); });
    if (failure_) send_refusal(child);
}

void CheckInRelay::send(Child& child, CheckInFrame kind, const ByteWriter& content) {
    traffic_->sent(kind, content.bytes().size());
    child.link->send(uint32_t(kind), content);
}

void CheckInRelay::send_last(Child& child, CheckInFrame kind, const ByteWriter& content) {
    send(child, kind, content);
    child.link->close_when_idle();
}

void CheckInRelay::on_frame(int place, CheckInFrame kind, ByteReader& content) {
    traffic_->received(kind, content.left());
    if (settled_) return;
    switch (kind) {
        case CheckInFrame::attach: children_[place].attached = true; return send(children_[place], CheckInFrame::taken);
        case CheckInFrame::joined: return add_reports(content.rest());
        case CheckInFrame::lost: [[fallthrough]];
        case CheckInFrame::failed: return up_(kind, content.rest());
        default: WEFT_LOG(warn, net, "the leader at place {} sent an invalid check-in frame", place);
    }
}

void CheckInRelay::on_end(int place, const Status& why) {
    const bool lost = children_[place].attached && !settled_;
    children_.erase(place);
    if (!lost) return;
    ByteWriter content;
    content.put(int32_t(place));
    content.put_text(end_text(why));
    up_(CheckInFrame::lost, content);
}

void CheckInRelay::add_reports(const ByteWriter& reports) {
    reports_.append(reports.bytes().data(), reports.bytes().size());
    const int64_t rest_us = reported_us_ + reports_apart_us - now_us();
    if (rest_us <= 0) return send_reports();
    if (timer_ == 0) timer_ = dispatcher_->service().after(rest_us, [this] { send_reports(); });
}

void CheckInRelay::send_reports() {
    dispatcher_->service().cancel(timer_);
    timer_ = 0;
    reported_us_ = now_us();
    if (!settled_) up_(CheckInFrame::joined, std::exchange(reports_, {}));
}

void CheckInRelay::tell(const std::string& obstacle) {
    told_us_ = now_us();
    ByteWriter content;
    content.put_text(obstacle);
    for (auto& [place, child] : children_)
        if (!settled_) send(child, CheckInFrame::waiting, content);
}

void CheckInRelay::refuse(const Failure& failure) {
    if (std::exchange(settled_, true)) return;
    failure_ = failure;
    for (auto& [place, child] : children_) send_refusal(child);
}

void CheckInRelay::send_refusal(Child& child) {
    ByteWriter content;
    content.put_failure(*failure_);
    send_last(child, CheckInFrame::refused, content);
}

void CheckInRelay::finish(const ByteWriter& rank_table) {
    if (std::exchange(settled_, true)) return;
    for (auto& [place, child] : children_) send_last(child, CheckInFrame::rank_table, rank_table);
}

}  // namespace weft::internal
