#include "src/control/control.hpp"

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal {

namespace {

constexpr int64_t tick_us = TreeLinks::tick_us;     // how soon a death on this host is reported to others
constexpr int64_t unreachable_us = 3'000'000;       // the cause is usually known within this time
constexpr int64_t failure_patience_us = 1'000'000;  // for neighbours' kernels to acknowledge a failure
constexpr int64_t finish_patience_us = 12'000'000;  // for neighbours to receive the last frames
constexpr int64_t finish_at_exit_us = 2'000'000;    // likewise, at the end of the process
// At the end of the process: how often the control checks whether calls of other ranks need it, and how long it waits.
// Ranks that are silent for `silence_us` do not count.
constexpr int64_t exit_tick_us = 10'000, exit_patience_us = 10'000'000, silence_us = 2'000'000;

struct LeavingControls {
    std::mutex mutex;
    std::condition_variable gone;
    std::set<std::shared_ptr<Control>> controls;
};
LeavingControls& leaving_controls() {
    static PerProcess<LeavingControls> processes;
    return processes.get();
}

}  // namespace

Control::Control(std::shared_ptr<AcceptDispatcher> dispatcher, std::shared_ptr<Segment> segment,
                 const net::Identity& identity, ControlSettings settings)
    : dispatcher_(std::move(dispatcher)),
      segment_(std::move(segment)),
      identity_(identity),
      heartbeat_ms_(settings.heartbeat_ms),
      health_(std::move(settings.settled_event)),
      check_in_(service(), segment_, identity_, std::move(settings.check_in),
                [this](RankTable rank_table) { settle(std::move(rank_table)); }) {
    dispatcher_->listener().register_identity(identity_);
    service().run([this] {
        service().on_failure(this, [this](ErrorId error, const char* what) {
            char sentence[256];  // no allocation: memory may have run out
            const auto end =
                fmt::format_to_n(sentence, sizeof sentence,
                                 "the service thread of process {}, which leads its host, failed: {}", getpid(), what);
            segment_->raise(error, -1, {sentence, std::min(end.size, sizeof sentence)});
        });
        Status status = service().watch(segment_->doorbell(), EPOLLIN, [this](uint32_t) { read_segment(); });
        if (!status) WEFT_LOG(warn, init, "{}", status.text());
        tick_timer_ = service().after(tick_us, [this] { tick(); });
        check_in_.begin();
    });
}

Control::~Control() {
    if (!ended_) service().run([this] { end(); });
}

void Control::signal_settled() const { ring_event(health_); }

std::string Control::obstacle() {
    std::string text;
    service().run([&] { text = check_in_.obstacle(); });
    return text;
}

// ---- The rank table

bool Control::is_here(const HostEntry& host) const {
    return std::all_of(host.members.begin(), host.members.end(), [this](const RankEntry& member) {
        return check_in_.members().count(member.rank) && segment_->rank_info(member.rank).pid == member.pid;
    });
}

// Fills `host_` and the rows.
Status Control::write_rows() {
    for (size_t host = 0; host < rank_table_.hosts.size(); ++host) {
        const bool here = is_here(rank_table_.hosts[host]);
        if (here) host_ = int(host);
        for (const RankEntry& member : rank_table_.hosts[host].members) {
            if (member.rank < 0 || member.rank >= segment_->ranks()) continue;
            RankInfo& info = segment_->rank_info(member.rank);
            info.host = int32_t(host);
            if (here) continue;
            if (check_in_.members().count(member.rank))
                return fail(error::mismatch_rank_twice, "two processes are rank {} of {}: pid {} here and pid {} on {}",
                            member.rank, segment_->ranks(), info.pid.load(), member.pid, rank_table_.hosts[host].text())
                    .about({.rank = member.rank});
            if (member.device.use != DeviceFacts::none) {
                WEFT_TRY(segment_->back_rows(member.rank, 1));
                segment_->row(member.rank).device = member.device;
            }
            info.cpu = member.cpu;
            info.pid.store(member.pid, std::memory_order_release);
        }
    }
    std::vector<HostInfo> infos;
    for (const HostEntry& host : rank_table_.hosts) {
        HostInfo& info = infos.emplace_back();
        host.name.copy(info.name, sizeof info.name - 1);
        info.leader = host.pid;
        const auto listener = net::pack_addresses(host.addresses);
        static_assert(sizeof listener == sizeof info.listener_addresses);
        memcpy(info.listener_addresses, listener.data(), sizeof info.listener_addresses);
    }
    WEFT_TRY(segment_->set_host_infos(infos));
    return host_ >= 0 ? ok() : fail(error::internal_state, "the rank table lacks this host");
}

void Control::settle(RankTable rank_table) {
    rank_table_ = std::move(rank_table);
    SegmentHeader& header = segment_->header();
    // All ranks are on this host and joined late. The segment is complete, and no rank needs the network.
    if (rank_table_.hosts.size() == 1 && is_here(rank_table_.hosts[0])) return;
    Status status = write_rows();
    if (status) {
        header.agreed = rank_table_.agreed;
        header.facts = rank_table_.facts;
        header.own_host = host_;
        status = std::exchange(rank_table_.texts, {}).leave(*segment_);
    }
    if (status) {
        header.spread.store(1, std::memory_order_release);  // pairs with Segment::one_host()
        status = segment_->settle();
    }
    if (!status) {
        host_ = -1;
        segment_->raise(status, -1);
        return;
    }
    syscall(SYS_futex, &header.joined, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    signal_settled();
    WEFT_LOG(info, init, "host {} of {}: {}", host_, rank_table_.hosts.size(), rank_table_.text(host_));
    tree_links_ = std::make_unique<TreeLinks>(
        dispatcher_, identity_, rank_table_, host_, heartbeat_ms_,
        TreeLinks::Handlers{
            [this](int host, ControlFrame kind, ByteReader& content) { on_frame(host, kind, content); },
            [this](int host, const Status* why) {
                health_table_->on_end(host);
                if (why && !segment_->aborted() && !leader_has_left(host))
                    mark_lost(host,
                              fmt::format("{} is lost: {}; its leader, {} (pid {}), died, or the network reset the "
                                          "connection",
                                          rank_table_.text(host), *why ? "it closed the connection" : why->sentence(),
                                          ranks_text(ranks_of_leader(host)), rank_table_.hosts[size_t(host)].pid),
                              -1);
                go_if_done();
            },
            [this](const Status& trouble) {
                segment_->raise(trouble, -1);
                send_abort(-1);
            }});
    health_table_ = std::make_unique<HealthTable>(service(), segment_, *tree_links_, host_,
                                                  int(rank_table_.hosts.size()), [this] { read_before_report(); });
    read_segment();
}

// ---- ControlFrame

// Whether that process ended in order, perhaps without a shutdown frame (_exit): its ranks have reported that they left.
// Data connections of other processes of its host do not need it.
bool Control::leader_has_left(int host) const {
    const std::vector<int> ranks = ranks_of_leader(host);
    return std::all_of(ranks.begin(), ranks.end(), [this](int rank) {
        return segment_->row(rank).state.load(std::memory_order_acquire) == RankState::left;
    });
}

std::vector<int> Control::ranks_of_leader(int host) const {
    const HostEntry& entry = rank_table_.hosts[size_t(host)];
    std::vector<int> ranks;
    for (const RankEntry& member : entry.members)
        if (member.pid == entry.pid) ranks.push_back(member.rank);
    return ranks;
}

// No error by itself: the data that the host sent before may suffice for the calls of other ranks. A rank that waits for
// the host in vain reports it.
void Control::mark_lost(int host, const std::string& sentence, int except) {
    // An error that was returned to the leader's ranks counts for the host's other ranks too: no more is known of them.
    Status returned;
    for (const int rank : ranks_of_leader(host))
        if (returned) returned = segment_->returned_error(rank);
    LossRecord& loss = segment_->header().loss;
    if (loss.state.load(std::memory_order_relaxed) == 0) {
        loss.host = host;
        loss.sentence[sentence.copy(loss.sentence, sizeof loss.sentence - 1)] = 0;
        loss.state.store(1, std::memory_order_release);
    }
    for (const RankEntry& member : rank_table_.hosts[size_t(host)].members) {
        if (member.pid != rank_table_.hosts[size_t(host)].pid && segment_->back_rows(member.rank, 1)) {
            RankRow& row = segment_->row(member.rank);
            const auto position = row.position.read();
            if (!returned && position) row.returned_error.write(position->entered, returned.failure());
            row.out_of_sight.store(1, std::memory_order_release);
        }
        segment_->mark_dead(member.rank);
    }
    ByteWriter content;
    content.put(int32_t(host));
    content.put_text(sentence);
    tree_links_->flood(ControlFrame::lost, content, except);
}

void Control::on_frame(int host, ControlFrame kind, ByteReader& content) {
    switch (kind) {
        case ControlFrame::oob: {
            const auto entry = content.get<Segment::OobEntry>();
            if (!content.at_end() || entry.to < 0 || entry.to >= segment_->ranks()) break;
            if (segment_->rank_info(entry.to).host != host_) return forward(entry);
            if (Status status = segment_->oob_deliver(entry); !status) segment_->raise(status, -1);
            return;
        }
        case ControlFrame::failed: {
            const int rank = content.get<int32_t>();
            const Failure failure = content.get_failure();
            segment_->raise(failure, rank);
            return send_abort(host);
        }
        case ControlFrame::alive: return;
        case ControlFrame::query_request: return health_table_->request();
        case ControlFrame::query: return health_table_->on_query(content.get<uint32_t>());
        case ControlFrame::report: return health_table_->on_report(host, content);
        case ControlFrame::answer:
            tree_links_->flood(ControlFrame::answer, content.rest(), host);
            return health_table_->on_answer(content);
        case ControlFrame::lost: {
            const int gone = content.get<int32_t>();
            const std::string sentence = content.get_text();
            if (!content.at_end() || gone < 0 || gone >= int(rank_table_.hosts.size())) break;
            return mark_lost(gone, sentence, host);
        }
        case ControlFrame::shutdown: health_table_->read_table(content); return go_if_done();
        case ControlFrame::ranks_left: [[fallthrough]];
        case ControlFrame::table: {
            const ByteWriter copy = content.rest();
            health_table_->read_table(content);
            if (kind != ControlFrame::ranks_left || !std::exchange(ranks_left_sent_, true))
                tree_links_->flood(ControlFrame::table, copy, host);
            return go_if_done();
        }
    }
    WEFT_LOG(warn, net, "{} sent an invalid control frame", rank_table_.text(host));
}

// Sends what this host's ranks have for other hosts.
void Control::send_pending() {
    if (host_ >= 0)
        for (const int rank : segment_->locals())
            while (const auto* entry = segment_->next_outgoing_oob(rank, oob_sent_[rank])) forward(*entry);
    if (segment_->aborted()) return send_abort(-1);
    send_returned_errors();
}

void Control::forward(const Segment::OobEntry& entry) {
    const int next = HostTree::next(host_, segment_->rank_info(entry.to).host);
    if (tree_links_->ended(next)) {
        unreachable_.insert(entry.to);
        if (unreachable_timer_ == 0)
            unreachable_timer_ = service().after(unreachable_us, [this] {
                unreachable_timer_ = 0;
                report_unreachable();
                go_if_done();
            });
        return;
    }
    ByteWriter content;
    content.put(entry);
    tree_links_->send(next, ControlFrame::oob, content);
}

// Without this error two ranks would wait for each other for ever. Ranks that died or left have been reported by others.
void Control::report_unreachable() {
    for (const int rank : std::exchange(unreachable_, {})) {
        const RankState state = segment_->row(rank).state.load(std::memory_order_acquire);
        if (state == RankState::left || state == RankState::dead || segment_->aborted()) continue;
        const int target = segment_->rank_info(rank).host;
        segment_->raise(error::host_lost, -1,
                        fmt::format("{} cannot be reached for the first time: frames to {} pass through {}, whose "
                                    "leader has ended",
                                    segment_->name_of(rank), rank_table_.hosts[size_t(target)].name,
                                    rank_table_.hosts[size_t(HostTree::next(host_, target))].name),
                        {.rank = rank});
        send_abort(-1);
    }
}

// The doorbell rang: sends the changes of the segment to other hosts.
void Control::read_segment() {
    segment_->drain_doorbell();
    send_pending();
    if (host_ < 0) {
        if (segment_->aborted() || int(segment_->header().joined.load(std::memory_order_acquire)) == segment_->ranks())
            signal_settled();
        return check_in_.report_joined();
    }
    const uint32_t health_requests = segment_->header().health_requests.load(std::memory_order_acquire);
    if (health_requests != std::exchange(health_requests_, health_requests)) health_table_->request();
    go_if_done();
}

void Control::tick() {
    tick_timer_ = service().after(tick_us, [this] { tick(); });
    if (tree_links_) tree_links_->detect_pause();
    read_segment();
    if (!segment_->aborted()) find_dead_ranks();
    if (tree_links_ && !segment_->aborted()) tree_links_->tick();
    go_if_done();
}

// The order of sending: the first error, then the failures returned to our ranks, then their deaths.
void Control::read_before_report() {
    send_pending();
    if (!segment_->aborted()) find_dead_ranks();
    send_pending();
}

void Control::find_dead_ranks() {
    for (const int rank : check_in_.members()) {
        const RankRow& row = segment_->row(rank);
        if (row.state.load(std::memory_order_acquire) != RankState::joined) continue;
        if (segment_->alive(rank) || row.state.load(std::memory_order_acquire) != RankState::joined) continue;
        if (host_ < 0) {
            segment_->raise(error::init_rank_died, rank,
                            fmt::format("{} died while the ranks were joining", segment_->name_of(rank)),
                            {.rank = rank});
            return send_abort(-1);
        }
        segment_->mark_dead(rank);
        tree_links_->flood(ControlFrame::table, health_table_->table_of({rank}));
    }
}

void Control::send_abort(int except) {
    if (host_ < 0) return check_in_.send_abort();
    if (std::exchange(abort_sent_, true)) return;
    failure_sent_us_ = now_us();
    const Status failure = segment_->abort_status();
    ByteWriter content;
    content.put(int32_t(segment_->header().abort.rank));
    content.put_failure(failure.failure());
    tree_links_->flood(ControlFrame::failed, content, except);
}

void Control::send_returned_errors() {
    if (!tree_links_) return;
    std::vector<int> changed;
    for (const int rank : segment_->locals()) {
        const uint64_t calls = segment_->row(rank).returned_error.calls.load(std::memory_order_acquire);
        if (calls != 0 && std::exchange(returned_errors_sent_[rank], calls) != calls) changed.push_back(rank);
    }
    if (changed.empty()) return;
    failure_sent_us_ = now_us();
    tree_links_->flood(ControlFrame::table, health_table_->table_of(changed));
}

void Control::report_failure() {
    for (bool looked = false, arrived = false;; usleep(200)) {
        service().run([&] {
            if (!ended_ && tree_links_ && !std::exchange(looked, true)) read_before_report();
            arrived =
                ended_ || !tree_links_ || tree_links_->arrived() || now_us() > failure_sent_us_ + failure_patience_us;
        });
        if (arrived) return;
    }
}

// ---- LeavingControls

void Control::leave(std::shared_ptr<Control> control) {
    static const int registered = atexit(await_shutdown);
    (void)registered;
    Control* self = control.get();
    const auto dispatcher = self->dispatcher_;
    {
        std::lock_guard lock(leaving_controls().mutex);
        leaving_controls().controls.insert(std::move(control));
    }
    // Sent before this returns, so that it arrives even if the process ends now by _exit.
    dispatcher->service().run([self] {
        self->read_segment();
        if (self->tree_links_)
            self->tree_links_->flood(ControlFrame::ranks_left, self->health_table_->table_of(self->segment_->locals()));
        self->leaving_ = true;
        self->go_if_done();
    });
}

// Of a rank of this host that has left. The rank reports the end of its kernels in `device_left`.
bool Control::has_kernels(int rank) const {
    const RankRow& row = segment_->row(rank);
    return row.device.use != DeviceFacts::none && !row.device_left.load(std::memory_order_acquire) &&
           row.state.load(std::memory_order_acquire) == RankState::left && segment_->alive(rank);
}

// Whether a rank is still in a call that this host's ranks have finished, so that it may need this host.
bool Control::in_calls() const {
    uint64_t last = 0;
    for (const int rank : segment_->locals())
        if (has_kernels(rank)) return true;
    for (const int rank : segment_->locals()) last = std::max(last, segment_->row(rank).position.finished.load());
    for (int rank = 0; rank < segment_->ranks() && last > 0; ++rank) {
        const RankRow& row = segment_->row(rank);
        const RankState state = row.state.load(std::memory_order_acquire);
        if (state == RankState::left || state == RankState::dead) continue;
        const auto position = row.position.read();
        if (position && position->finished >= last) continue;
        if (segment_->local(rank) ? segment_->alive(rank)
                                  : now_us() - exiting_since_us_ < silence_us || row.heard_us > exiting_since_us_)
            return true;
    }
    return false;
}

bool Control::needed() const {
    if (segment_->aborted()) return false;
    bool here = false;
    for (const int rank : segment_->locals())
        here |= segment_->row(rank).state.load(std::memory_order_acquire) == RankState::joined || has_kernels(rank);
    // An entry without a path is reported later.
    if (!here && tree_links_->remaining() <= 1 && (unreachable_.empty() || exiting_since_us_ != 0)) return false;
    return exiting_since_us_ == 0 || (now_us() - exiting_since_us_ < exit_patience_us && in_calls());
}

void Control::go_if_done() {
    if (!leaving_ || ended_) return;
    if (!tree_links_) return end();
    if (finishing_since_us_ == 0) {
        if (needed()) return;
        send_pending();
        report_unreachable();
        tree_links_->flood(ControlFrame::shutdown, health_table_->table_of(health_table_->ours()));
        finishing_since_us_ = now_us();
        tree_links_->finish();
    }
    if (tree_links_->remaining() == 0 ||
        now_us() - finishing_since_us_ > (exiting_since_us_ ? finish_at_exit_us : finish_patience_us))
        end();
}

// Repeats itself from the first call on.
void Control::poll_at_exit() {
    if (ended_) return;
    const int64_t now = now_us();
    if (exiting_since_us_ == 0) exiting_since_us_ = now;
    if (health_table_) health_table_->request();
    exit_timer_ = service().after(exit_tick_us, [this] { poll_at_exit(); });
    go_if_done();
}

void Control::end() {
    if (std::exchange(ended_, true)) return;
    service().forget(segment_->doorbell());
    service().on_failure(this, {});
    service().cancel(tick_timer_);
    service().cancel(exit_timer_);
    service().cancel(unreachable_timer_);
    dispatcher_->listener().unregister_identity(identity_.name);
    check_in_.end();
    if (!leaving_) {
        health_table_.reset();
        tree_links_.reset();
        return;
    }
    // As a task, because the caller may be a callback of a connection.
    service().post([this] {
        health_table_.reset();
        tree_links_.reset();
        std::shared_ptr<Control> self;  // destroyed outside the lock
        std::lock_guard lock(leaving_controls().mutex);
        const auto& all = leaving_controls().controls;
        const auto place = std::find_if(all.begin(), all.end(), [this](const auto& one) { return one.get() == this; });
        if (place != all.end()) self = std::move(leaving_controls().controls.extract(place).value());
        leaving_controls().gone.notify_all();
    });
}

// At the end of the process. A child after fork has no leaving controls and returns at once.
void Control::await_shutdown() {
    std::unique_lock lock(leaving_controls().mutex);
    const auto controls = leaving_controls().controls;
    lock.unlock();
    for (const auto& control : controls) control->service().post([control] { control->poll_at_exit(); });
    lock.lock();
    leaving_controls().gone.wait_for(lock, std::chrono::microseconds(exit_patience_us + finish_at_exit_us),
                                     [] { return leaving_controls().controls.empty(); });
}

}  // namespace weft::internal
