#include "src/control/tree/tree_links.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "src/base/thread.hpp"
#include "src/net/lost_packets.hpp"

namespace weft::internal {

namespace {
constexpr int64_t retry_us = 20'000;
constexpr int64_t link_patience_us = 10'000'000;  // the least time for a neighbour to connect
}  // namespace

TreeLinks::TreeLinks(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity,
                     const RankTable& rank_table, int host, Heartbeat heartbeat, Handlers handlers)
    : dispatcher_(std::move(dispatcher)),
      identity_(identity),
      rank_table_(&rank_table),
      host_(host),
      heartbeat_(heartbeat),
      handlers_(std::move(handlers)),
      begun_us_(heartbeat.clock()),
      ticked_{.at_us = begun_us_},
      probes_(service(), identity_, rank_table, host, [this](int child, const Status& why) { end(child, why); }) {
    dispatcher_->expect(identity_.name, net::control, uint64_t(host_), [this](net::AcceptedConnection accepted) {
        const int child = int(accepted.purpose.detail);
        if (child > 0 && child < int(rank_table_->hosts.size()) && HostTree::parent(child) == host_)
            link(child, std::move(accepted.socket));
    });
    if (host_ > 0) connect_to_parent();
}

TreeLinks::~TreeLinks() {
    dispatcher_->stop_expecting(identity_.name, net::control, uint64_t(host_));
    service().cancel(retry_timer_);
}

void TreeLinks::connect_to_parent() {
    const int parent = HostTree::parent(host_);
    connect_ = std::make_unique<AsyncConnect>(
        service(), identity_, net::Purpose{net::control, uint32_t(host_), uint64_t(parent)},
        net::TargetProcess{.process = rank_table_->hosts[size_t(parent)].process},
        rank_table_->hosts[size_t(parent)].addresses, [this, parent](Result<Fd> socket) {
            const bool again = connect_->closed_early() && heartbeat_.clock() - begun_us_ < link_patience_us;
            connect_.reset();
            if (socket) return link(parent, std::move(*socket));
            if (again) {
                retry_timer_ = service().after(retry_us, [this] { connect_to_parent(); });
                return;
            }
            ended_.insert(parent);
            handlers_.on_trouble(fail(socket.status(), "{} could not be reached from {}: {}", rank_table_->text(parent),
                                      rank_table_->hosts[size_t(host_)].name, socket.status().sentence()));
        });
}

void TreeLinks::link(int host, Fd socket) {
    probes_.forget(host);
    auto& link = links_[host];
    link = std::make_unique<ControlConnection>(
        service(), std::move(socket),
        [this, host](uint32_t kind, ByteReader& content) {
            if (ControlFrame(kind) == ControlFrame::shutdown) departed_.insert(host);
            handlers_.on_frame(host, ControlFrame(kind), content);
        },
        [this, host](const Status& why) { end(host, why); }, heartbeat_.clock);
    WEFT_LOG(info, net, "control connection with {}", rank_table_->text(host));
    const auto early = early_.extract(host);
    if (early)
        for (const auto& [kind, content] : early.mapped()) link->send(uint32_t(kind), content);
    if (finishing_) link->finish();
}

void TreeLinks::end(int host, const Status& why) {
    links_.erase(host);
    probes_.forget(host);
    ended_.insert(host);
    handlers_.on_end(host, finishing_ || departed_.count(host) ? nullptr : &why);
}

void TreeLinks::send(int host, ControlFrame kind, const ByteWriter& content) {
    if (ended_.count(host) || finishing_) return;
    const auto place = links_.find(host);
    if (place == links_.end())
        early_[host].emplace_back(kind, content);
    else
        place->second->send(uint32_t(kind), content);
}

void TreeLinks::visit(const std::function<void(int)>& visitor) const {
    if (host_ > 0) visitor(HostTree::parent(host_));
    const int first = host_ * HostTree::arity + 1, hosts = int(rank_table_->hosts.size());
    for (int child = first; child < std::min(first + HostTree::arity, hosts); ++child) visitor(child);
}

int TreeLinks::remaining() const {
    int count = 0;
    visit([&](int host) { count += !ended(host); });
    return count;
}

bool TreeLinks::arrived() const {
    return std::all_of(early_.begin(), early_.end(), [this](const auto& entry) { return ended(entry.first); }) &&
           std::all_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second->arrived(); });
}

void TreeLinks::flood(ControlFrame kind, const ByteWriter& content, int except) {
    visit([&](int host) {
        if (host != except) send(host, kind, content);
    });
}

void TreeLinks::finish() {
    if (std::exchange(finishing_, true)) return;
    for (const auto& [host, link] : links_) link->finish();
}

// Heartbeats are sent at ticks, so silence is at least some ticks.
int64_t TreeLinks::limit_us() const { return std::max(heartbeat_.limit_ms * 1000, 4 * tick_us); }

// A process that was stopped itself, or had no processor, has read no frames: it must not report others as silent.
void TreeLinks::detect_pause() {
    const int64_t now = heartbeat_.clock(), asleep_us = now - std::exchange(ticked_.at_us, now);
    const int64_t waited = processor_wait_us(), waited_us = waited - std::exchange(ticked_.processor_wait_us, waited);
    if (asleep_us > std::min(4 * tick_us, limit_us() / 2))
        for (const auto& [host, link] : links_) link->heard_us = now;
    if (heartbeat_.limit_ms > 0 && asleep_us > limit_us() / 2)
        WEFT_LOG(warn, net,
                 "this process, which leads its host, {} for {:.1f} s and sent no heartbeat: after {} ms "
                 "(WEFT_HEARTBEAT_MS) other hosts take its host for dead",
                 waited_us > asleep_us / 2
                     ? "was given no processor, which others used,"
                     : "was stopped (SIGSTOP, a debugger, its container's quota, or its whole machine)",
                 double(asleep_us) / 1e6, heartbeat_.limit_ms);
}

static std::string missing_text(const ControlConnection& link) {
    const std::string missing = link.missing_packets();
    return missing.empty() ? "" : ", or " + missing;
}

// A rank whose packets are lost may wait for nothing itself, so this is logged as soon as it is seen.
void TreeLinks::check_packets(int64_t now) {
    next_check_packets_us_ = now + check_packets_us;
    std::string lost = net::lost_packets_of_process();
    for (const auto& [host, link] : links_)
        if (lost.empty()) lost = link->lost_packets();
    if (lost.empty()) return;
    next_check_packets_us_ = now + report_packets_us;
    WEFT_LOG(warn, net, "{}", lost);
}

void TreeLinks::tick() {
    const int64_t now = heartbeat_.clock();
    std::string trouble;
    if (now - begun_us_ >= ChildProbes::first_us)
        visit([&](int host) {
            if (HostTree::parent(host) == host_ && !linked(host) && !ended(host)) probes_.call(host, now);
        });
    if (now - begun_us_ > std::max(limit_us(), link_patience_us))
        visit([&](int host) {
            if (links_.count(host) || !ended_.insert(host).second) return;
            trouble = fmt::format(
                "{} has joined but does not answer {} since: it is down or stopped, or the network between them is cut "
                "or loses large packets (MTU)",
                rank_table_->text(host), rank_table_->hosts[size_t(host_)].name);
        });
    for (const auto& [host, link] : links_) {
        if (heartbeat_.limit_ms <= 0) break;
        if (now - link->spoken_us > limit_us() / 4) send(host, ControlFrame::alive);
        if (now - link->heard_us > limit_us() && !departed_.count(host) && trouble.empty())
            trouble = fmt::format(
                "{} has sent no heartbeat for {:.1f} s: {} (WEFT_HEARTBEAT_MS is {})", rank_table_->text(host),
                double(now - link->heard_us) / 1e6,
                // This host has sent heartbeats meanwhile, which the other machine's kernel acknowledges.
                link->machine_silent_us().value_or(limit_us()) < limit_us() / 2
                    ? fmt::format("its machine acknowledges what is sent to it, so its leader (pid {}) is stopped or "
                                  "is given no processor{}",
                                  rank_table_->hosts[size_t(host)].pid, missing_text(*link))
                    : "it is down, or the network to it is cut",
                heartbeat_.limit_ms);
    }
    if (!trouble.empty())
        handlers_.on_trouble(fail(error::host_lost, "{}", trouble));
    else if (now > next_check_packets_us_)
        check_packets(now);
}

}  // namespace weft::internal
