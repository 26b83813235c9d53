#include "src/control/control.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/log.hpp"
#include "src/control/host_rows.hpp"
#include "src/control/leaving_controls.hpp"
#include "src/control/unfinished_calls.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

namespace {

constexpr int64_t tick_us = TreeLinks::tick_us;     // how soon a death on this host is reported to others
constexpr int64_t finish_patience_us = 12'000'000;  // for neighbours to receive the last frames
constexpr int64_t finish_at_exit_us = 2'000'000;    // likewise, at the end of the process
// At the end of the process: how often the control checks whether calls of other ranks need it, and how long it waits.
constexpr int64_t exit_tick_us = 10'000, exit_patience_us = 10'000'000;

}  // namespace

Control::Control(std::shared_ptr<AcceptDispatcher> dispatcher, std::shared_ptr<Segment> segment,
                 const net::Identity& identity, ControlSettings settings)
    : dispatcher_(std::move(dispatcher)),
      segment_(std::move(segment)),
      identity_(identity),
      heartbeat_{settings.heartbeat_ms, settings.clock},
      health_(std::move(settings.settled_event)),
      check_in_(dispatcher_, segment_, identity_, std::move(settings.check_in),
                [this](RankTable rank_table) { settle(std::move(rank_table)); }) {
    dispatcher_->listener().register_identity(identity_);
    service().run([this] {
        service().on_failure(this, [this](ErrorId error, const char* what) {
            char sentence[256];  // no allocation: memory may have run out
            const auto end =
                fmt::format_to_n(sentence, sizeof sentence,
                                 "the service thread of process {}, which leads its host, failed: {}", getpid(), what);
            FailureRecord(*segment_).raise(error, -1, {sentence, std::min(end.size, sizeof sentence)});
        });
        Status status = service().watch(segment_->doorbell().number(), EPOLLIN, [this](uint32_t) { read_segment(); });
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

void Control::settle(RankTable rank_table) {
    rank_table_ = std::move(rank_table);
    // All ranks are on this host and joined late. The segment is complete, and no rank needs the network.
    if (rank_table_.hosts.size() == 1 && is_this_host(*segment_, rank_table_.hosts[0], check_in_.members())) return;
    auto own = write_rank_table(*segment_, rank_table_, check_in_.members());
    if (!own) {
        FailureRecord(*segment_).raise(own.status(), -1);
        return;
    }
    host_ = *own;
    signal_settled();
    WEFT_LOG(info, init, "host {} of {}: {}", host_, rank_table_.hosts.size(), rank_table_.text(host_));
    tree_links_ = std::make_unique<TreeLinks>(
        dispatcher_, identity_, rank_table_, host_, heartbeat_,
        TreeLinks::Handlers{[this](int host, ControlFrame kind, ByteReader& content) { on_frame(host, kind, content); },
                            [this](int host, const Status* why) { on_end(host, why); },
                            [this](const Status& trouble) {
                                FailureRecord(*segment_).raise(trouble, -1);
                                send_abort(-1);
                            }});
    health_table_ = std::make_unique<HealthTable>(service(), segment_, *tree_links_, host_,
                                                  int(rank_table_.hosts.size()), [this] { read_before_report(); });
    failure_sender_ = std::make_unique<FailureSender>(segment_, *tree_links_, *health_table_);
    oob_forwarder_ = std::make_unique<OobForwarder>(segment_, rank_table_, *tree_links_, host_, heartbeat_.clock);
    read_segment();
}

void Control::report_unreachable() {
    if (oob_forwarder_->report_unreachable()) send_abort(-1);
}

// `why`: null if the leader of `host` ended in order.
void Control::on_end(int host, const Status* why) {
    health_table_->on_end(host);
    if (!why)
        write_ended_leader(*segment_, rank_table_, host);
    else if (leader_has_left(*segment_, rank_table_, host))
        mark_lost(host, "", -1);
    else if (!segment_->aborted())
        mark_lost(host, lost_text(rank_table_, host, *why), -1);
    go_if_done();
}

void Control::mark_lost(int host, const std::string& sentence, int except) {
    write_lost_host(*segment_, rank_table_, host, sentence);
    ByteWriter content;
    content.put(int32_t(host));
    content.put_text(sentence);
    tree_links_->flood(ControlFrame::lost, content, except);
}

void Control::on_frame(int host, ControlFrame kind, ByteReader& content) {
    switch (kind) {
        case ControlFrame::oob:
            if (!oob_forwarder_->on_frame(content)) break;
            return;
        case ControlFrame::failed: {
            const int rank = content.get<int32_t>();
            const Failure failure = content.get_failure();
            FailureRecord(*segment_).raise(failure, rank);
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
    if (oob_forwarder_) oob_forwarder_->send_pending();
    if (segment_->aborted()) return send_abort(-1);
    if (failure_sender_) failure_sender_->send_returned_errors();
}

// The doorbell rang: sends the changes of the segment to other hosts.
void Control::read_segment() {
    segment_->doorbell().drain();
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
    if (host_ < 0) check_in_.tick();
    if (!segment_->aborted()) find_dead_ranks();
    if (tree_links_ && !segment_->aborted()) tree_links_->tick();
    if (oob_forwarder_ && oob_forwarder_->unreachable_due()) report_unreachable();
    go_if_done();
}

// The order of sending: the first error, then the failures returned to our ranks, then their deaths.
void Control::read_before_report() {
    send_pending();
    if (!segment_->aborted()) find_dead_ranks();
    send_pending();
}

void Control::find_dead_ranks() {
    for (const int rank : dead_ranks(*segment_, check_in_.members())) {
        if (host_ < 0) {
            FailureRecord(*segment_).raise(error::init_rank_died, rank,
                                           fmt::format("{} died while the ranks were joining", segment_->name_of(rank)),
                                           {.rank = rank});
            return send_abort(-1);
        }
        mark_dead(*segment_, rank);
        tree_links_->flood(ControlFrame::table, health_table_->table_of({rank}));
    }
}

void Control::send_abort(int except) {
    if (!failure_sender_) return check_in_.send_abort();
    failure_sender_->send_abort(except);
}

void Control::report_failure() {
    for (bool looked = false, arrived = false;; usleep(200)) {
        service().run([&] {
            if (!ended_ && tree_links_ && !std::exchange(looked, true)) read_before_report();
            arrived = ended_ || !failure_sender_ || failure_sender_->arrived();
        });
        if (arrived) return;
    }
}

void Control::leave(std::shared_ptr<Control> control) {
    static const int registered = atexit(await_shutdown);
    (void)registered;
    Control* self = control.get();
    const auto dispatcher = self->dispatcher_;
    LeavingControls::of_process().add(std::move(control));
    // Sent before this returns, so that it arrives even if the process ends now by _exit.
    dispatcher->service().run([self] {
        self->read_segment();
        if (self->tree_links_)
            self->tree_links_->flood(ControlFrame::ranks_left, self->health_table_->table_of(self->segment_->locals()));
        self->leaving_ = true;
        self->go_if_done();
    });
}

bool Control::needed() const {
    if (segment_->aborted()) return false;
    bool here = false;
    for (const int rank : segment_->locals())
        here |= segment_->row(rank).state.load(std::memory_order_acquire) == RankState::joined ||
                has_kernels(*segment_, rank);
    // An entry without a path is reported later.
    if (!here && check_in_.relayed() && tree_links_->remaining() <= 1 &&
        (!oob_forwarder_->has_unreachable() || exiting_since_us_ != 0))
        return false;
    if (exiting_since_us_ == 0) return true;
    const int64_t ending_us = heartbeat_.clock() - exiting_since_us_;
    return ending_us < exit_patience_us && (!check_in_.relayed() || needed_by_calls(*segment_, ending_us));
}

void Control::go_if_done() {
    if (!leaving_ || ended_) return;
    if (!tree_links_) return end();
    if (finishing_since_us_ == 0) {
        if (needed()) return;
        send_pending();
        report_unreachable();
        tree_links_->flood(ControlFrame::shutdown, health_table_->table_of(health_table_->ours()));
        finishing_since_us_ = heartbeat_.clock();
        tree_links_->finish();
    }
    if (tree_links_->remaining() == 0 ||
        heartbeat_.clock() - finishing_since_us_ > (exiting_since_us_ ? finish_at_exit_us : finish_patience_us))
        end();
}

// Repeats itself from the first call on.
void Control::poll_at_exit() {
    if (ended_) return;
    const int64_t now = heartbeat_.clock();
    if (exiting_since_us_ == 0) exiting_since_us_ = now;
    if (health_table_) health_table_->request();
    exit_timer_ = service().after(exit_tick_us, [this] { poll_at_exit(); });
    go_if_done();
}

void Control::end() {
    if (std::exchange(ended_, true)) return;
    service().forget(segment_->doorbell().number());
    service().on_failure(this, {});
    service().cancel(tick_timer_);
    service().cancel(exit_timer_);
    dispatcher_->listener().unregister_identity(identity_.name);
    check_in_.end();
    if (!leaving_) {
        oob_forwarder_.reset();
        failure_sender_.reset();
        health_table_.reset();
        tree_links_.reset();
        return;
    }
    // As a task, because the caller may be a callback of a connection.
    service().post([this] {
        oob_forwarder_.reset();
        failure_sender_.reset();
        health_table_.reset();
        tree_links_.reset();
        const std::shared_ptr<Control> self = LeavingControls::of_process().remove(this);
    });
}

// At the end of the process. A child after fork has no leaving controls and returns at once.
void Control::await_shutdown() {
    LeavingControls& leaving = LeavingControls::of_process();
    const auto controls = leaving.all();
    for (const auto& control : controls) control->service().post([control] { control->poll_at_exit(); });
    leaving.wait(exit_patience_us + finish_at_exit_us);
}

}  // namespace weft::internal
