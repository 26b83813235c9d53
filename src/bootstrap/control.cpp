#include "src/bootstrap/control.hpp"

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace weft {

namespace {
constexpr int64_t tick_us = Neighbours::tick_us;  // how soon a death on this host is told to others
constexpr int64_t leave_patience_us = 2'000'000;  // for neighbours to link, when there is only goodbye to be said
}  // namespace

Control::Control(std::shared_ptr<Reception> reception, std::shared_ptr<HostGroup> group, const net::Identity& identity,
                 ControlSettings settings)
    : reception_(std::move(reception)),
      group_(std::move(group)),
      identity_(identity),
      heartbeat_ms_(settings.heartbeat_ms),
      news_(std::move(settings.news)),
      registration_(service(), group_, identity_, std::move(settings.registration),
                    [this](Roster roster) { settle(std::move(roster)); }) {
    reception_->door().admit(identity_);
    service().run([this] {
        if (Status status = service().watch(group_->doorbell(), EPOLLIN, [this](uint32_t) { look_around(); }); !status)
            WEFT_LOG(warn, init, "{}", status.sentence());
        tick_timer_ = service().after(tick_us, [this] { tick(); });
        registration_.begin();
    });
}

Control::~Control() {
    // Neighbours that have not linked yet would take us for dead.
    useconds_t pause_us = 500;
    for (const int64_t until = now_us() + leave_patience_us; now_us() < until; pause_us *= 2) {
        bool linked = true;
        service().run([&] { linked = !neighbours_ || group_->aborted() || neighbours_->all_linked(); });
        if (linked) break;
        usleep(std::min<useconds_t>(pause_us, 50'000));
    }
    service().run([this] {
        look_around();  // what was posted last is carried, an error above all
        if (neighbours_) neighbours_->leave(census_->table_of(group_->locals()));
        service().forget(group_->doorbell());
        service().cancel(tick_timer_);
        census_.reset();
        neighbours_.reset();
        registration_.end();
    });
    reception_->door().dismiss(identity_.name);
}

void Control::tell_news() const {
    const uint64_t once = 1;
    (void)!write(news(), &once, sizeof once);
}

// ---- The roster

bool Control::is_here(const HostEntry& host) const {
    return std::all_of(host.members.begin(), host.members.end(), [this](const RosterRank& member) {
        return registration_.members().count(member.rank) && group_->row(member.rank).pid == member.pid;
    });
}

// Fills `host_` and the rows.
Status Control::write_rows() {
    for (size_t host = 0; host < roster_.hosts.size(); ++host) {
        const bool here = is_here(roster_.hosts[host]);
        if (here) host_ = int(host);
        for (const RosterRank& member : roster_.hosts[host].members) {
            if (member.rank < 0 || member.rank >= group_->ranks()) continue;
            RankRow& row = group_->row(member.rank);
            row.host = int32_t(host);
            const std::string name = roster_.hosts[host].name.substr(0, sizeof row.where - 1);
            memcpy(row.where, name.c_str(), name.size() + 1);
            if (here) continue;
            if (registration_.members().count(member.rank))
                return fail(weftMismatch, "two processes are rank {} of {}: pid {} here and pid {} on {}", member.rank,
                            group_->ranks(), row.pid, member.pid, roster_.hosts[host].text());
            row.pid = member.pid;
            row.state.store(RankState::joined, std::memory_order_release);
        }
    }
    return host_ >= 0 ? ok() : fail(weftInternalError, "the roster of the ranks lacks this host");
}

void Control::settle(Roster roster) {
    roster_ = std::move(roster);
    HostHeader& header = group_->header();
    // All are here, only later than usual: the segment says so too, and nobody needs the network.
    if (roster_.hosts.size() == 1 && is_here(roster_.hosts[0])) return;
    Status status = write_rows();
    if (status) {
        header.agreed = roster_.agreed;
        header.facts = roster_.facts;
        header.own_host = host_;
        header.spread.store(1, std::memory_order_release);  // pairs with HostGroup::one_host()
        status = group_->settle();
    }
    if (!status) {
        host_ = -1;
        group_->raise(status.code(), -1, status.sentence());
        return;
    }
    syscall(SYS_futex, &header.joined, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    tell_news();
    WEFT_LOG(info, init, "host {} of {}: {}", host_, roster_.hosts.size(), roster_.text(host_));
    neighbours_ = std::make_unique<Neighbours>(
        reception_, identity_, roster_, host_, heartbeat_ms_,
        Neighbours::Handlers{
            [this](int host, News kind, ByteReader& content) { on_frame(host, kind, content); },
            [this](int host, const Status& why) {
                if (!group_->aborted())
                    mark_lost(
                        host,
                        fmt::format("{} is lost: {}; its leader (pid {}) died, or the network reset the connection",
                                    roster_.text(host), why ? "it closed the connection" : why.sentence(),
                                    roster_.hosts[size_t(host)].pid),
                        -1);
            },
            [this](const std::string& sentence) {
                group_->raise(weftRemoteError, -1, sentence);
                tell_abort(-1);
            }});
    census_ = std::make_unique<Census>(service(), group_, *neighbours_, host_, int(roster_.hosts.size()));
    look_around();
}

// ---- News

// Not an error by itself: what that host sent before may suffice for the calls that others are in. Who waits for its
// ranks in vain reports it.
void Control::mark_lost(int host, const std::string& sentence, int except) {
    LossRecord& loss = group_->header().loss;
    if (loss.state.load(std::memory_order_relaxed) == 0) {
        loss.host = host;
        loss.sentence[sentence.copy(loss.sentence, sizeof loss.sentence - 1)] = 0;
        loss.state.store(1, std::memory_order_release);
    }
    for (const RosterRank& member : roster_.hosts[size_t(host)].members) group_->mark_dead(member.rank);
    ByteWriter content;
    content.put(int32_t(host));
    content.put_text(sentence);
    neighbours_->flood(News::lost, content, except);
}

void Control::on_frame(int host, News kind, ByteReader& content) {
    switch (kind) {
        case News::letter: {
            const auto letter = content.get<HostGroup::Letter>();
            if (!content.at_end() || letter.to < 0 || letter.to >= group_->ranks()) break;
            const int target = group_->row(letter.to).host;
            if (target != host_) {
                ByteWriter copy;
                copy.put(letter);
                return neighbours_->send(HostTree::next(host_, target), kind, copy);
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
        case News::sweep_request: return census_->request();
        case News::sweep: return census_->on_sweep(content.get<uint32_t>());
        case News::report: return census_->on_report(host, content);
        case News::lost: {
            const int gone = content.get<int32_t>();
            const std::string sentence = content.get_text();
            if (!content.at_end() || gone < 0 || gone >= int(roster_.hosts.size())) break;
            return mark_lost(gone, sentence, host);
        }
        case News::goodbye: neighbours_->part_from(host); [[fallthrough]];
        case News::table: {
            const ByteWriter copy = content.rest();
            census_->read_table(content);
            if (kind == News::goodbye && std::exchange(goodbye_told_, true)) return;
            return neighbours_->flood(News::table, copy, host);
        }
    }
    WEFT_LOG(warn, net, "{} sent a message that means nothing here", roster_.text(host));
}

// The doorbell rang: what has changed in the segment that others must know?
void Control::look_around() {
    uint64_t rung;
    (void)!read(group_->doorbell(), &rung, sizeof rung);
    if (group_->aborted()) tell_abort(-1);
    if (host_ < 0) {
        if (group_->aborted() || int(group_->header().joined.load(std::memory_order_acquire)) == group_->ranks())
            tell_news();
        return registration_.look_around();
    }
    for (const int rank : group_->locals())
        while (const auto* letter = group_->letter_abroad(rank, letters_[rank])) {
            ByteWriter content;
            content.put(*letter);
            neighbours_->send(HostTree::next(host_, group_->row(letter->to).host), News::letter, content);
        }
    const uint32_t curious = group_->header().curious.load(std::memory_order_acquire);
    if (curious != std::exchange(curious_, curious)) census_->request();
}

void Control::tick() {
    tick_timer_ = service().after(tick_us, [this] { tick(); });
    look_around();
    if (group_->aborted()) return;
    look_for_the_dead();
    if (neighbours_) neighbours_->tick();
}

void Control::look_for_the_dead() {
    for (const int rank : registration_.members()) {
        const RankRow& row = group_->row(rank);
        if (row.state.load(std::memory_order_acquire) != RankState::joined) continue;
        if (group_->alive(rank) || row.state.load(std::memory_order_acquire) != RankState::joined) continue;
        if (host_ < 0) {
            group_->raise(weftRemoteError, rank,
                          fmt::format("{} died while the ranks were meeting", group_->name_of(rank)));
            return tell_abort(-1);
        }
        group_->mark_dead(rank);
        neighbours_->flood(News::table, census_->table_of({rank}));
    }
}

void Control::tell_abort(int except) {
    if (host_ < 0) return registration_.tell_abort();
    if (std::exchange(abort_told_, true)) return;
    const Status failure = group_->abort_status();
    ByteWriter content;
    content.put(int32_t(failure.code()));
    content.put(int32_t(group_->header().abort.rank));
    content.put_text(failure.sentence());
    neighbours_->flood(News::failed, content, except);
}

}  // namespace weft
