#include "src/comm/engines/point_to_point.hpp"

namespace weft::internal {

namespace {

constexpr uint64_t messages_name = 0x5bd1e9955bd1e995u;

// Polls of a single receive before it joins the messages that pause() waits for; about a microsecond.
constexpr int looks_at_once = 64;

}  // namespace

PointToPoint::PointToPoint(RankContext& context) : context_(context), messages_(context, messages_name) {}

bool PointToPoint::moved_at_once(const MessageCall& message) {
    Exchange& exchange = messages_.existing();
    if (!exchange.is_simple(message.peer, message.bytes())) return false;
    context_.waiting.seen_here();
    if (message.outgoing)
        return exchange.send_at_once(message.peer, message.data, message.count, message.type, {message.by});
    polled_.clear();
    polled_.insert(message.peer);
    for (int look = 0; look < looks_at_once; ++look) {
        if (exchange.receive_at_once(message.peer, message.data, message.count, message.type, {message.by}))
            return context_.waiting.stir(), true;
        if (context_.waiting.pause(polled_, false)) break;
    }
    return false;
}

void PointToPoint::begin(const Call& call, const MessageCall& message) {
    Exchange& exchange = messages_.get();
    if (exchange.idle()) {
        limit_ = {call.settings.timeout_ms, call.timeout_set_by};
        context_.begin_waiting();
    }
    limit_.timeout_ms = context_.earlier(limit_.timeout_ms, call.settings.timeout_ms);
    if (message.outgoing)
        exchange.send(message.peer, message.data, message.count, message.type, {message.by});
    else
        exchange.receive(message.peer, message.data, message.count, message.type, {message.by});
}

Progress PointToPoint::advance() { return messages_.exists() ? messages_.advance() : Progress::done; }

Status PointToPoint::look() {
    const Exchange& exchange = messages_.existing();
    context_.watch(limit_);
    Status trouble = context_.watchdog.look_at_partners(
        exchange.missing(), context_.waiting.silence_us(), [&](int other) { return exchange.owed_by(other); },
        exchange.connecting());
    in_trouble_ = !trouble;
    return trouble;
}

Status PointToPoint::cause() {
    const Exchange& exchange = messages_.existing();
    return context_.watchdog.look_at_partners(exchange.missing(), INT64_MAX,
                                              [&](int other) { return exchange.owed_by(other); });
}

}  // namespace weft::internal
