#include "src/bootstrap/control.hpp"

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/bootstrap/root.hpp"

namespace weft {

namespace {

// Kinds of frames between leaders.
enum class News : uint32_t {
    letter = 1,     // HostGroup::Letter, to the host of its addressee
    failed,         // code, rank, text: the first error
    alive,          // nothing
    goodbye,        // this host's leader leaves in order: entries of its ranks
    sweep_request,  // up: somebody wants to know where everyone is
    sweep,          // down: number
    report,         // up: number, entries of a subtree
    table,          // entries of ranks, for all
    lost,           // host, text: its leader is gone without goodbye
};

// Where a rank is, as it travels.
struct Whereabouts {
    int32_t rank;
    uint32_t state;  // RankState
    uint32_t stopped;
    uint64_t entered, finished;
    Operation operation;
};

constexpr int64_t retry_first_us = 20'000, retry_most_us = 1'000'000;
constexpr int64_t tick_us = 250'000;         // how soon a death on this host is told to others
constexpr int64_t sweep_apart_us = 200'000;  // sweeps cost every host a message
constexpr int64_t report_patience_us = 500'000;
constexpr int64_t link_patience_us = 10'000'000;  // for a neighbour to link, at least
constexpr int64_t leave_patience_us = 2'000'000;  // for the same, when there is nothing to do but say goodbye

}  // namespace

Control::Control(std::shared_ptr<Reception> reception, std::shared_ptr<HostGroup> group, const net::Identity& identity,
                 ControlSettings settings)
    : reception_(std::move(reception)),
      group_(std::move(group)),
      identity_(identity),
      settings_(std::move(settings)),
      retry_us_(retry_first_us) {
    reception_->door().admit(identity_);
    service().run([this] {
        if (Status status = service().watch(group_->doorbell(), EPOLLIN, [this](uint32_t) { look_around(); }); !status)
            WEFT_LOG(warn, init, "{}", status.sentence());
        tick_timer_ = service().after(tick_us, [this] { tick(); });
        dial_root();
    });
}

Control::~Control() {
    // Neighbours that have not linked yet would take us for dead.
    useconds_t pause_us = 500;
    for (const int64_t until = now_us() + leave_patience_us; now_us() < until; pause_us *= 2) {
        bool linked = true;
        service().run([&] { linked = group_->aborted() || all_linked(); });
        if (linked) break;
        usleep(std::min<useconds_t>(pause_us, 50'000));
    }
    service().run([this] {
        look_around();  // what was posted last is carried, an error above all
        if (host_ >= 0) {
            gathered_ = {};
            gathered_count_ = 0;
            put_own_ranks();
            ByteWriter content;
            content.put(gathered_count_);
            content.append(gathered_.bytes().data(), gathered_.bytes().size());
            for (const auto& [host, link] : links_) {
                link->send(uint32_t(News::goodbye), content);
                link->part();
            }
        }
        links_.clear();
        if (root_) root_->part();
        root_.reset();
        dial_.reset();
        if (host_ >= 0) reception_->stop_expecting(identity_.name, net::control, uint64_t(host_));
        service().forget(group_->doorbell());
        for (const uint64_t timer : {retry_timer_, tick_timer_, sweep_timer_}) service().cancel(timer);
    });
    reception_->door().dismiss(identity_.name);
}

std::string Control::obstacle() const {
    std::lock_guard lock(mutex_);
    return obstacle_;
}

void Control::set_obstacle(std::string text) {
    std::lock_guard lock(mutex_);
    obstacle_ = std::move(text);
}

void Control::tell_news() const {
    const uint64_t once = 1;
    (void)!write(news(), &once, sizeof once);
}

std::string Control::host_text(int host) const {
    const HostEntry& entry = roster_.hosts[size_t(host)];
    std::vector<int> ranks;
    for (const RosterRank& member : entry.members) ranks.push_back(member.rank);
    return fmt::format("host {} with {}", entry.text(), ranks_text(ranks));
}

// ---- The meeting

void Control::dial_root() {
    dial_ = std::make_unique<Dial>(
        service(), identity_, net::Purpose{net::checkin, 0, 0}, settings_.root, [this](Result<Fd> socket) {
            if (socket) return check_in(std::move(*socket));
            const Status& why = socket.status();
            const bool final = why.code() == weftMismatch || (settings_.root_exists && why.code() == weftInvalidUsage);
            set_obstacle(fmt::format("the root of the meeting was not reached: {}", why.sentence()));
            dial_.reset();
            if (final) {
                group_->raise(why.code(), -1, why.sentence());
                return;
            }
            // It may not run yet, or be busy.
            retry_timer_ = service().after(retry_us_, [this] { dial_root(); });
            retry_us_ = std::min(retry_us_ * 2, retry_most_us);
        });
}

std::vector<RosterRank> Control::newly_joined() {
    std::vector<RosterRank> members;
    const size_t joined = group_->header().joined.load(std::memory_order_acquire);
    for (int rank = 0; rank < group_->ranks() && checked_in_.size() < joined; ++rank) {
        const RankRow& row = group_->row(rank);
        if (row.state.load(std::memory_order_acquire) >= RankState::joined && checked_in_.insert(rank).second)
            members.push_back({rank, row.pid});
    }
    return members;
}

// Those that the ranks of this host may run on together.
int Control::cores() const {
    CpuSet all;
    for (const int rank : checked_in_) all |= group_->row(rank).cpus;
    return all.count();
}

void Control::put_members(ByteWriter& to, const std::vector<RosterRank>& members) const {
    for (const RosterRank& member : members)
        if (member.rank == 0) to.put(group_->header().agreed);
}

void Control::check_in(Fd socket) {
    dial_.reset();
    set_obstacle("");
    root_ = std::make_unique<Link>(
        service(), std::move(socket), [this](uint32_t kind, ByteReader& content) { on_root_frame(kind, content); },
        [this](const Status& why) {
            root_.reset();
            if (host_ >= 0 || group_->aborted()) return;
            group_->raise(weftRemoteError, -1,
                          fmt::format("the process where the ranks check in, the one that made the unique id, ended "
                                      "before all had met: {}",
                                      why ? "it closed the connection" : why.sentence()));
        });
    HostEntry self = settings_.self;
    self.members = newly_joined();
    self.cores = cores();
    ByteWriter content;
    self.write(content);
    put_members(content, self.members);
    root_->send(uint32_t(CheckIn::host), content);
    if (group_->aborted()) tell_abort(-1);  // it could not be told before
}

void Control::on_root_frame(uint32_t kind, ByteReader& content) {
    if (kind == uint32_t(CheckIn::waiting)) {
        set_obstacle(content.get_text());
    } else if (kind == uint32_t(CheckIn::refused)) {
        const auto code = weftResult_t(content.get<int32_t>());
        const std::string sentence = content.get_text();
        abort_told_ = host_ < 0;  // the root told everybody; after the roster it only refuses whoever came too late
        group_->raise(code > weftSuccess && code < weftNumResults ? code : weftInternalError, -1, sentence);
        root_.reset();
    } else if (kind == uint32_t(CheckIn::roster)) {
        Roster roster = Roster::read(content);
        if (!content.at_end()) {
            group_->raise(weftInternalError, -1, "the roster of the ranks came damaged");
            return;
        }
        settle(std::move(roster));
        root_.reset();
    }
}

void Control::settle(Roster roster) {
    // All are here, only later than usual: the segment says so too, and nobody needs the network.
    const auto is_here = [this](const HostEntry& host) {
        return std::all_of(host.members.begin(), host.members.end(), [this](const RosterRank& member) {
            return checked_in_.count(member.rank) && group_->row(member.rank).pid == member.pid;
        });
    };
    if (roster.hosts.size() == 1 && is_here(roster.hosts[0])) return;
    roster_ = std::move(roster);
    HostHeader& header = group_->header();
    int mine = -1;
    for (size_t host = 0; host < roster_.hosts.size(); ++host) {
        const bool here = is_here(roster_.hosts[host]);
        for (const RosterRank& member : roster_.hosts[host].members) {
            if (member.rank < 0 || member.rank >= group_->ranks()) continue;
            RankRow& row = group_->row(member.rank);
            row.host = int32_t(host);
            const std::string name = roster_.hosts[host].name.substr(0, sizeof row.where - 1);
            memcpy(row.where, name.c_str(), name.size() + 1);
            if (here) {
                mine = int(host);
            } else if (checked_in_.count(member.rank)) {
                group_->raise(weftMismatch, member.rank,
                              fmt::format("two processes are rank {} of {}: pid {} here and pid {} on {}", member.rank,
                                          group_->ranks(), row.pid, member.pid, roster_.hosts[host].text()));
                return;
            } else {
                row.pid = member.pid;
                row.state.store(RankState::joined, std::memory_order_release);
            }
        }
    }
    if (mine < 0) {
        group_->raise(weftInternalError, -1, "the roster of the ranks lacks this host");
        return;
    }
    host_ = mine;
    settled_us_ = now_us();
    header.agreed = roster_.agreed;
    header.facts = roster_.facts;
    header.own_host = mine;
    header.spread.store(1, std::memory_order_release);  // pairs with HostGroup::one_host()
    if (Status status = group_->settle(); !status) {
        group_->raise(status.code(), -1, status.sentence());
        return;
    }
    syscall(SYS_futex, &header.joined, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    tell_news();
    WEFT_LOG(info, init, "host {} of {}: {}", host_, roster_.hosts.size(), host_text(host_));
    reception_->expect(identity_.name, net::control, uint64_t(host_), [this](net::Arrival arrival) {
        const int host = int(arrival.purpose.detail);
        if (host > 0 && host < int(roster_.hosts.size()) && HostTree::parent(host) == host_)
            linked(host, std::move(arrival.socket));
    });
    if (host_ > 0) dial_parent();
    abort_told_ = false;  // what the root was told crossed the roster
    look_around();
}

// ---- The tree

void Control::dial_parent() {
    const int parent = HostTree::parent(host_);
    retry_us_ = retry_first_us;
    dial_ =
        std::make_unique<Dial>(service(), identity_, net::Purpose{net::control, uint32_t(host_), uint64_t(parent)},
                               roster_.hosts[size_t(parent)].addresses, [this, parent](Result<Fd> socket) {
                                   const bool again = dial_->turned_away() && now_us() - settled_us_ < link_patience_us;
                                   dial_.reset();
                                   if (!socket && again) {
                                       retry_timer_ = service().after(retry_first_us, [this] { dial_parent(); });
                                       return;
                                   }
                                   if (socket) return linked(parent, std::move(*socket));
                                   if (group_->aborted()) return;
                                   group_->raise(weftRemoteError, -1,
                                                 fmt::format("{} could not be reached from {}: {}", host_text(parent),
                                                             settings_.self.name, socket.status().sentence()));
                               });
}

void Control::linked(int host, Fd socket) {
    auto& link = links_[host];
    link = std::make_unique<Link>(
        service(), std::move(socket),
        [this, host](uint32_t kind, ByteReader& content) { on_frame(host, kind, content); },
        [this, host](const Status& why) { lost(host, why); });
    WEFT_LOG(info, net, "control connection with {}", host_text(host));
    const auto early = early_.extract(host);
    if (early)
        for (const auto& [kind, content] : early.mapped()) link->send(kind, content);
}

void Control::send(int host, uint32_t kind, const ByteWriter& content) {
    if (parted_.count(host)) return;
    const auto place = links_.find(host);
    if (place == links_.end())
        early_[host].emplace_back(kind, content);
    else
        place->second->send(kind, content);
}

void Control::neighbours(const std::function<void(int)>& visit) const {
    if (host_ > 0) visit(HostTree::parent(host_));
    const int first = host_ * HostTree::arity + 1, hosts = int(roster_.hosts.size());
    for (int child = first; child < std::min(first + HostTree::arity, hosts); ++child) visit(child);
}

bool Control::all_linked() const {
    bool all = true;
    if (host_ >= 0) neighbours([&](int host) { all = all && (links_.count(host) || parted_.count(host)); });
    return all;
}

void Control::flood(uint32_t kind, const ByteWriter& content, int except) {
    neighbours([&](int host) {
        if (host != except) send(host, kind, content);
    });
}

void Control::lost(int host, const Status& why) {
    links_.erase(host);
    if (!parted_.insert(host).second || group_->aborted()) return;
    mark_lost(
        host,
        fmt::format("{} is lost: {}; its leader (pid {}) died, or the network reset the connection", host_text(host),
                    why ? "it closed the connection" : why.sentence(), roster_.hosts[size_t(host)].pid),
        -1);
}

// Not an error by itself: what that host sent before may suffice for the calls that others are in. Who waits for its
// ranks in vain reports it.
void Control::mark_lost(int host, const std::string& sentence, int except) {
    LossRecord& loss = group_->header().loss;
    if (loss.state.load(std::memory_order_relaxed) == 0) {
        loss.host = host;
        loss.sentence[sentence.copy(loss.sentence, sizeof loss.sentence - 1)] = 0;
        loss.state.store(1, std::memory_order_release);
    }
    for (const RosterRank& member : roster_.hosts[size_t(host)].members) mark_dead(member.rank);
    ByteWriter content;
    content.put(int32_t(host));
    content.put_text(sentence);
    flood(uint32_t(News::lost), content, except);
}

void Control::mark_dead(int rank) {
    RankState joined = RankState::joined;
    group_->row(rank).state.compare_exchange_strong(joined, RankState::dead);
    group_->wake_sleepers();
}

void Control::on_frame(int host, uint32_t kind, ByteReader& content) {
    switch (News(kind)) {
        case News::letter: {
            const auto letter = content.get<HostGroup::Letter>();
            if (!content.at_end() || letter.to < 0 || letter.to >= group_->ranks()) break;
            const int target = group_->row(letter.to).host;
            if (target != host_) {
                ByteWriter copy;
                copy.put(letter);
                return send(HostTree::next(host_, target), kind, copy);
            }
            if (Status status = group_->deliver(letter); !status) group_->raise(status.code(), -1, status.sentence());
            return;
        }
        case News::failed: {
            const auto code = weftResult_t(content.get<int32_t>());
            const int rank = content.get<int32_t>();
            const std::string sentence = content.get_text();
            group_->raise(code > weftSuccess && code < weftNumResults ? code : weftInternalError, rank, sentence);
            return tell_abort(host);
        }
        case News::alive: return;
        case News::sweep_request: return request_sweep();
        case News::sweep: return sweep(content.get<uint32_t>());
        case News::report: {
            if (content.get<uint32_t>() != sweep_number_ || reports_due_.erase(host) == 0) return;  // late
            const uint32_t count = content.get<uint32_t>();
            for (uint32_t i = 0; i < count && content.ok(); ++i) gathered_.put(content.get<Whereabouts>());
            gathered_count_ += count;
            if (reports_due_.empty()) report();
            return;
        }
        case News::lost: {
            const int gone = content.get<int32_t>();
            const std::string sentence = content.get_text();
            if (!content.at_end() || gone < 0 || gone >= int(roster_.hosts.size())) break;
            return mark_lost(gone, sentence, host);
        }
        case News::goodbye: parted_.insert(host); [[fallthrough]];
        case News::table: {
            ByteReader again = content;
            read_table(content);
            ByteWriter copy;
            if (News(kind) == News::goodbye && std::exchange(goodbye_told_, true)) return;
            copy.put(again.get<uint32_t>());
            while (!again.at_end() && again.ok()) copy.put(again.get<Whereabouts>());
            return flood(uint32_t(News::table), copy, host);
        }
    }
    WEFT_LOG(warn, net, "{} sent a message that means nothing here", host_text(host));
}

// ---- News

// The doorbell rang: what has changed in the segment that others must know?
void Control::look_around() {
    uint64_t rung;
    (void)!read(group_->doorbell(), &rung, sizeof rung);
    if (group_->aborted()) tell_abort(-1);
    if (host_ < 0) {
        if (group_->aborted() || int(group_->header().joined.load(std::memory_order_acquire)) == group_->ranks())
            tell_news();
        if (!root_) return;
        const auto members = newly_joined();
        if (members.empty()) return;
        ByteWriter content;
        content.put(int32_t(cores()));
        content.put(uint32_t(members.size()));
        for (const RosterRank& member : members) content.put(member);
        put_members(content, members);
        root_->send(uint32_t(CheckIn::joined), content);
        return;
    }
    for (const int rank : group_->locals())
        while (const auto* letter = group_->letter_abroad(rank, letters_[rank])) {
            ByteWriter content;
            content.put(*letter);
            send(HostTree::next(host_, group_->row(letter->to).host), uint32_t(News::letter), content);
        }
    const uint32_t curious = group_->header().curious.load(std::memory_order_acquire);
    if (curious != std::exchange(curious_, curious)) request_sweep();
}

void Control::tick() {
    tick_timer_ = service().after(tick_us, [this] { tick(); });
    look_around();
    if (group_->aborted()) return;
    for (const int rank : checked_in_) {
        const RankRow& row = group_->row(rank);
        if (row.state.load(std::memory_order_acquire) != RankState::joined) continue;
        if (group_->alive(rank) || row.state.load(std::memory_order_acquire) != RankState::joined) continue;
        if (host_ < 0) {
            group_->raise(weftRemoteError, rank,
                          fmt::format("{} died while the ranks were meeting", group_->name_of(rank)));
            return tell_abort(-1);
        }
        mark_dead(rank);
        ByteWriter content;
        content.put(uint32_t(1));
        put_whereabouts(rank, content);
        flood(uint32_t(News::table), content);
    }
    if (host_ < 0 || settings_.heartbeat_ms <= 0) return;
    // Signs leave at ticks: less than some of them is no silence.
    const int64_t now = now_us(), limit_us = std::max(settings_.heartbeat_ms * 1000, 4 * tick_us);
    // Who was stopped itself, or not given a processor, has not listened: it does not accuse others of silence.
    if (now - std::exchange(ticked_us_, now) > std::min(4 * tick_us, limit_us / 2))
        for (const auto& [host, link] : links_) link->heard_us = now;
    if (now - settled_us_ > std::max(limit_us, link_patience_us))
        neighbours([&](int host) {
            if (links_.count(host) || parted_.count(host)) return;
            group_->raise(weftRemoteError, -1,
                          fmt::format("{} has met the others but does not answer {} since: it is down or stopped, or "
                                      "the network between them is cut",
                                      host_text(host), settings_.self.name));
        });
    for (const auto& [host, link] : links_) {
        if (parted_.count(host)) continue;
        if (now - link->spoken_us > limit_us / 4) link->send(uint32_t(News::alive));
        if (now - link->heard_us > limit_us) {
            group_->raise(
                weftRemoteError, -1,
                fmt::format("{} has given no sign of life for {:.1f} s: it is down or stopped, or the network "
                            "to it is cut (WEFT_HEARTBEAT_MS is {})",
                            host_text(host), double(now - link->heard_us) / 1e6, settings_.heartbeat_ms));
            return tell_abort(-1);
        }
    }
}

void Control::tell_abort(int except) {
    if (abort_told_ || (host_ < 0 && !root_)) return;
    abort_told_ = true;
    const Status failure = group_->abort_status();
    ByteWriter content;
    content.put(int32_t(failure.code()));
    if (host_ >= 0) {
        content.put(int32_t(group_->header().abort.rank));
        content.put_text(failure.sentence());
        flood(uint32_t(News::failed), content, except);
    } else {
        content.put_text(failure.sentence());
        root_->send(uint32_t(CheckIn::failed), content);
    }
}

void Control::request_sweep() {
    if (host_ > 0) return send(HostTree::parent(host_), uint32_t(News::sweep_request), {});
    if (sweeping_) return;
    const int64_t wait_us = swept_us_ + sweep_apart_us - now_us();
    if (wait_us <= 0) return sweep(sweep_number_ + 1);
    if (sweep_timer_ == 0)
        sweep_timer_ = service().after(wait_us, [this] {
            sweep_timer_ = 0;
            sweep(sweep_number_ + 1);
        });
}

// Asks the subtree, and answers when all of it has, or after a while.
void Control::sweep(uint32_t number) {
    sweep_number_ = number;
    sweeping_ = true;
    swept_us_ = now_us();
    gathered_ = {};
    gathered_count_ = 0;
    reports_due_.clear();
    put_own_ranks();
    ByteWriter content;
    content.put(number);
    neighbours([&](int child) {
        if (child < host_ || !links_.count(child) || parted_.count(child)) return;
        reports_due_.insert(child);
        send(child, uint32_t(News::sweep), content);
    });
    if (reports_due_.empty()) return report();
    service().cancel(sweep_timer_);
    // Who is nearer to the tree's root waits longer, so that one silent host hides itself alone.
    int levels = 1;
    for (int below = host_ * HostTree::arity + 1; below < int(roster_.hosts.size());
         below = below * HostTree::arity + 1)
        ++levels;
    sweep_timer_ = service().after(levels * report_patience_us, [this] {
        sweep_timer_ = 0;
        report();
    });
}

void Control::put_whereabouts(int rank, ByteWriter& to) const {
    const RankRow& row = group_->row(rank);
    const auto position = row.position.read();
    Whereabouts entry{};
    entry.rank = rank;
    entry.state = uint32_t(row.state.load(std::memory_order_acquire));
    entry.stopped = group_->stopped(rank);
    if (position) {
        entry.entered = position->entered;
        entry.finished = position->finished;
        entry.operation = position->operation;
    }
    to.put(entry);
}

void Control::put_own_ranks() {
    for (const int rank : group_->locals()) {
        put_whereabouts(rank, gathered_);
        ++gathered_count_;
    }
}

void Control::report() {
    if (!std::exchange(sweeping_, false)) return;
    service().cancel(std::exchange(sweep_timer_, 0));
    ByteWriter content;
    if (host_ > 0) content.put(sweep_number_);
    content.put(gathered_count_);
    for (ByteReader from(gathered_.bytes().data(), gathered_.bytes().size()); !from.at_end() && from.ok();)
        content.put(from.get<Whereabouts>());
    if (host_ > 0) return send(HostTree::parent(host_), uint32_t(News::report), content);
    ByteReader own(content.bytes().data(), content.bytes().size());
    read_table(own);
    flood(uint32_t(News::table), content);
}

void Control::read_table(ByteReader& content) {
    const int64_t now = now_us();
    for (uint32_t left = content.get<uint32_t>(); left > 0 && content.ok(); --left) {
        const auto entry = content.get<Whereabouts>();
        if (!content.ok() || entry.rank < 0 || entry.rank >= group_->ranks() || group_->local(entry.rank)) continue;
        RankRow& row = group_->row(entry.rank);
        // Tables come by several ways, an older one sometimes last.
        const auto known = row.position.read();
        if (known && entry.entered > known->entered) row.position.enter(entry.entered, entry.operation);
        if (known && entry.finished > known->finished) row.position.finish(entry.finished);
        if (entry.state == uint32_t(RankState::left)) row.state.store(RankState::left, std::memory_order_release);
        if (entry.state == uint32_t(RankState::dead)) mark_dead(entry.rank);
        row.stopped.store(entry.stopped, std::memory_order_relaxed);
        row.heard_us.store(now, std::memory_order_release);
    }
    group_->wake_sleepers();
}

}  // namespace weft
