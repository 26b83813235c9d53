#include "src/control/control_connection.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/net/lost_packets.hpp"

namespace weft::internal {

ControlConnection::ControlConnection(Service& service, Fd socket, OnFrame on_frame, OnEnd on_end, Clock clock)
    : heard_us(clock()),
      spoken_us(heard_us),
      service_(&service),
      clock_(clock),
      stream_(std::move(socket)),
      on_frame_(std::move(on_frame)),
      on_end_(std::move(on_end)) {
    rewatch();
}

ControlConnection::~ControlConnection() {
    *alive_ = false;
    service_->forget(stream_.descriptor());
}

void ControlConnection::send(uint32_t kind, const ByteWriter& content) {
    const auto alive = alive_;
    spoken_us = clock_();
    auto flushed = [&]() -> Result<bool> {
        WEFT_TRY(stream_.queue(kind, content.bytes().data(), content.bytes().size()));
        return stream_.flush();
    }();
    if (flushed) return rewatch();
    // Reported from the event loop, because the callback may destroy the connection and the caller still uses it.
    service_->post([this, alive] {
        if (*alive) step(0);
    });
}

std::optional<int64_t> ControlConnection::machine_silent_us() const {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (getsockopt(stream_.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
    return int64_t(info.tcpi_last_ack_recv) * 1000;
}

std::string ControlConnection::lost_packets() const {
    constexpr int64_t lately_us = 5'000'000;  // heartbeats and frames of the root are more frequent
    return clock_() - heard_us < lately_us ? net::lost_packets(stream_.descriptor()) : "";
}

std::string ControlConnection::missing_packets() const { return net::missing_packets(stream_.descriptor()); }

bool ControlConnection::arrived() const {
    int unacknowledged = 0;
    return idle() && (ioctl(stream_.descriptor(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0);
}

void ControlConnection::close_when_idle() {
    closing_ = true;
    const auto alive = alive_;
    service_->post([this, alive] {
        if (*alive && idle()) end(ok());
    });
}

void ControlConnection::part() {
    (void)stream_.flush();
    shutdown(stream_.descriptor(), SHUT_WR);
    std::byte unread[4096];
    while (recv(stream_.descriptor(), unread, sizeof unread, MSG_DONTWAIT) > 0) {
    }
}

void ControlConnection::finish() {
    if (std::exchange(finishing_, true)) return;
    const auto alive = alive_;
    service_->post([this, alive] {
        if (*alive) step(0);
    });
}

void ControlConnection::rewatch() {
    const bool out = !idle();
    if (watched_ && out == out_watched_) return;
    out_watched_ = out;
    watched_ = true;
    const uint32_t events = EPOLLIN | (out ? uint32_t(EPOLLOUT) : 0u);
    if (Status status = service_->watch(stream_.descriptor(), events, [this](uint32_t seen) { step(seen); }); !status)
        WEFT_LOG(warn, net, "{}", status.text());
}

void ControlConnection::step(uint32_t) {
    const auto alive = alive_;
    auto flushed = stream_.flush();
    if (flushed && closing_ && idle()) return end(ok());
    if (flushed && finishing_ && idle() && !std::exchange(shut_, true)) shutdown(stream_.descriptor(), SHUT_WR);
    if (flushed) rewatch();
    for (;;) {
        auto frame = stream_.receive();
        if (!frame) return end(finishing_ ? ok() : frame.take_status());
        // A shutdown frame may precede the error that our write returned.
        if (!*frame) return flushed ? void() : end(flushed.take_status());
        heard_us = clock_();
        if (finishing_) continue;
        ByteReader content((*frame)->bytes.data(), (*frame)->bytes.size());
        on_frame_((*frame)->kind, content);
        if (!*alive) return;
    }
}

void ControlConnection::end(Status why) {
    service_->forget(stream_.descriptor());
    const OnEnd on_end = on_end_;  // it may destroy this object
    on_end(std::move(why));
}

AsyncConnect::AsyncConnect(Service& service, const net::Identity& identity, net::Purpose purpose,
                           net::TargetProcess target, std::vector<net::Address> addresses, OnDone on_done)
    : service_(&service), outgoing_(identity, purpose, std::move(addresses), {}, target), on_done_(std::move(on_done)) {
    // Reported from the event loop, because the caller has not stored this object yet.
    const auto alive = alive_;
    service_->post([this, alive] {
        if (*alive) step();
    });
}

AsyncConnect::~AsyncConnect() {
    *alive_ = false;
    forget();
}

void AsyncConnect::forget() {
    for (const int fd : watched_) service_->forget(fd);
    watched_.clear();
    service_->cancel(timer_);
}

void AsyncConnect::step() {
    forget();
    auto socket = outgoing_.advance();
    if (!socket || *socket) {
        const OnDone on_done = std::move(on_done_);
        return socket ? on_done(std::move(**socket)) : on_done(socket.take_status());
    }
    std::vector<pollfd> list;
    outgoing_.add_descriptors(list);
    for (const pollfd& entry : list) {
        const uint32_t events =
            (entry.events & POLLIN ? uint32_t(EPOLLIN) : 0u) | (entry.events & POLLOUT ? uint32_t(EPOLLOUT) : 0u);
        if (service_->watch(entry.fd, events, [this](uint32_t) { step(); })) watched_.push_back(entry.fd);
    }
    constexpr int64_t look_again_us = 50'000;  // the deadlines of the connection have no descriptor
    timer_ = service_->after(look_again_us, [this] { step(); });
}

Result<std::shared_ptr<AcceptDispatcher>> AcceptDispatcher::of_process() {
    return shared_by_process<AcceptDispatcher>([]() -> Result<std::shared_ptr<AcceptDispatcher>> {
        auto service = Service::of_process();
        if (!service) return service.take_status();
        auto listener = net::Listener::of_process();
        if (!listener) return listener.take_status();
        // Its own descriptors: a dispatcher that is just ending may still watch the same listener.
        Fd listener_event = Fd::duplicate((*listener)->descriptor());
        Fd pending = Fd::duplicate((*listener)->pending_event_descriptor());
        if (!listener_event || !pending)
            return fail(error::system_descriptors, "no descriptor is left for the process's listener: {}",
                        no_descriptor_text(errno));
        return std::make_shared<AcceptDispatcher>(std::move(*service), std::move(*listener), std::move(listener_event),
                                                  std::move(pending));
    });
}

AcceptDispatcher::AcceptDispatcher(std::shared_ptr<Service> service, std::shared_ptr<net::Listener> listener,
                                   Fd listener_event, Fd pending)
    : service_(std::move(service)),
      listener_(std::move(listener)),
      listener_event_(std::move(listener_event)),
      pending_event_(std::move(pending)) {
    service_->run([this] {
        Status status = service_->watch(listener_event_.number(), EPOLLIN, [this](uint32_t) { step(); });
        // A rank that waits for data connections also calls progress() and makes connections pending.
        if (status) status = service_->watch(pending_event_.number(), EPOLLIN | EPOLLET, [this](uint32_t) { step(); });
        if (!status) WEFT_LOG(warn, net, "{}", status.text());
    });
}

AcceptDispatcher::~AcceptDispatcher() {
    service_->run([this] {
        service_->forget(listener_event_.number());
        service_->forget(pending_event_.number());
    });
}

void AcceptDispatcher::step() {
    if (Status status = listener_->progress(); !status) WEFT_LOG(warn, net, "{}", status.text());
    // A copy, because handlers may call expect() and stop_expecting().
    std::vector<Key> keys;
    for (const auto& [key, expected] : expected_) keys.push_back(key);
    for (const Key& key : keys) {
        hand_over(key);
        const auto place = expected_.find(key);
        if (place == expected_.end() || !place->second.on_trouble) continue;
        const OnTrouble on_trouble = place->second.on_trouble;
        if (const Status trouble = listener_->trouble(key.name); !trouble) on_trouble(trouble);
    }
}

void AcceptDispatcher::hand_over(const Key& key) {
    for (;;) {
        const auto place = expected_.find(key);
        if (place == expected_.end()) return;
        auto accepted = listener_->accept_for(key.name, key.kind);
        if (!accepted) return;
        Expected& expected = place->second;
        const auto own = expected.by_token.find(accepted->purpose.token);
        const OnAccepted handler = own != expected.by_token.end() ? own->second : expected.any;
        if (handler)
            handler(std::move(*accepted));
        else
            expected.early.emplace(accepted->purpose.token, std::move(*accepted));
    }
}

void AcceptDispatcher::expect(const net::IdName& name, uint32_t kind, std::optional<uint64_t> token,
                              OnAccepted on_accepted, OnTrouble on_trouble) {
    const Key key{name, kind};
    Expected& expected = expected_[key];
    if (on_trouble) expected.on_trouble = std::move(on_trouble);
    if (!token) {
        expected.any = std::move(on_accepted);
    } else {
        expected.by_token[*token] = std::move(on_accepted);
        while (const auto early = expected.early.extract(*token))
            service_->post([this, key, token = *token,
                            accepted = std::make_shared<net::AcceptedConnection>(std::move(early.mapped()))] {
                const auto place = expected_.find(key);
                if (place == expected_.end()) return;
                const auto own = place->second.by_token.find(token);
                if (own != place->second.by_token.end()) own->second(std::move(*accepted));
            });
    }
    service_->post([this, key] { hand_over(key); });
}

void AcceptDispatcher::stop_expecting(const net::IdName& name, uint32_t kind, std::optional<uint64_t> token) {
    const auto place = expected_.find({name, kind});
    if (place == expected_.end()) return;
    if (token)
        place->second.by_token.erase(*token);
    else
        place->second.any = nullptr;
    if (!place->second.any && place->second.by_token.empty()) expected_.erase(place);
}

}  // namespace weft::internal
