#include "src/control/check_in_client.hpp"

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/segment/failure_record.hpp"

namespace weft::internal {

namespace {
constexpr int64_t retry_most_us = 1'000'000;
constexpr int64_t listener_closed_us = 8'000'000;  // long enough for a better error of another rank to come first
constexpr int64_t root_silent_us = 2'500'000;      // the root sends the missing ranks every second
constexpr int64_t tell_apart_us = 1'000'000;
}  // namespace

CheckInClient::CheckInClient(std::shared_ptr<AcceptDispatcher> dispatcher, std::shared_ptr<Segment> segment,
                             const net::Identity& identity, CheckInSettings settings, OnRankTable on_rank_table)
    : dispatcher_(std::move(dispatcher)),
      segment_(std::move(segment)),
      identity_(identity),
      settings_(std::move(settings)),
      on_rank_table_(std::move(on_rank_table)),
      relay_(
          dispatcher_, identity_,
          [this](CheckInFrame kind, const ByteWriter& content) {
              if (up()) send(*up(), kind, content);
          },
          *settings_.traffic),
      joined_(segment_) {}

void CheckInClient::end() {
    // All ranks are on this host. The root may not know: a leader without a place has not reported later ranks.
    if (root_ && joined_.complete() && !segment_->aborted()) send(*root_, CheckInFrame::alone);
    if (root_) root_->part();
    if (parent_) parent_->part();
    close();
    relay_.end();
}

void CheckInClient::close() {
    root_.reset();
    parent_.reset();
    connect_.reset();
    dispatcher_->service().cancel(retry_.timer);
}

std::string CheckInClient::obstacle() const {
    if (connect_)
        if (const std::string pending = connect_->pending(); !pending.empty()) return "the root at " + pending;
    const ControlConnection* const up = this->up();
    const int64_t silent_us = up ? now_us() - up->heard_us : 0;
    if (const std::string lost = up ? up->lost_packets() : ""; !lost.empty())
        return fmt::format("{}{}{}", obstacle_, obstacle_.empty() ? "" : "; ", lost);
    if (silent_us < root_silent_us) return obstacle_;
    const std::string missing = up->missing_packets();
    return fmt::format("{}{}{} has said nothing for {} ms{}{}", obstacle_, obstacle_.empty() ? "" : "; ",
                       attached() ? placement_.leader : "the root at " + up->peer().text(), silent_us / 1000,
                       missing.empty() ? "" : "; ", missing);
}

void CheckInClient::tick() {
    const ControlConnection* const up = this->up();
    if (!up || now_us() - up->heard_us < root_silent_us || now_us() - relay_.told_us() < tell_apart_us) return;
    relay_.tell(obstacle());
}

void CheckInClient::send(ControlConnection& link, CheckInFrame kind, const ByteWriter& content) {
    settings_.traffic->sent(kind, content.bytes().size());
    link.send(uint32_t(kind), content);
}

void CheckInClient::connect() {
    connect_ = std::make_unique<AsyncConnect>(dispatcher_->service(), identity_, net::Purpose{net::checkin, 0, 0},
                                              net::TargetProcess{.process = 0, .root = true}, settings_.root,
                                              [this](Result<Fd> socket) {
                                                  if (socket) return check_in(std::move(*socket));
                                                  on_failed_connect(socket.status());
                                              });
}

void CheckInClient::on_failed_connect(const Status& why) {
    // A root that was there before the id was known does not begin to know it.
    const bool unknown = settings_.root_exists && connect_->unknown() && !connect_->closed_early();
    const ErrorId error = unknown ? error::init_id_unknown : why.id();
    obstacle_ = fmt::format("the root of the rendezvous was not reached: {}", why.sentence());
    const bool astray = settings_.root_elsewhere && connect_->misdirected();
    retry_.refused_us = !connect_->refused() ? 0 : retry_.refused_us == 0 ? now_us() : retry_.refused_us;
    connect_.reset();
    if (joined_.complete()) return;
    if (settings_.listener_existed && retry_.refused_us != 0 && now_us() - retry_.refused_us > listener_closed_us) {
        FailureRecord(*segment_).raise(
            error::init_leader_lost, -1,
            fmt::format("for {} s no process has listened where the ranks check in ({}): the process there has left, "
                        "or the addresses lead elsewhere from here",
                        listener_closed_us / 1'000'000, why.sentence()));
        return;
    }
    const weftResult_t code = row_of(error).code;
    if (code == weftMismatch || code == weftInvalidUsage || astray) {
        FailureRecord(*segment_).raise(error, -1, astray ? obstacle_ + settings_.root_hint : why.sentence());
        return;
    }
    // The root may not run yet, or be busy.
    retry_.timer = dispatcher_->service().after(retry_.after_us, [this] { connect(); });
    retry_.after_us = std::min(retry_.after_us * 2, retry_most_us);
}

void CheckInClient::check_in(Fd socket) {
    connect_.reset();
    obstacle_.clear();
    ++settings_.traffic->connections;
    root_ = std::make_unique<ControlConnection>(
        dispatcher_->service(), std::move(socket),
        [this](uint32_t kind, ByteReader& content) { on_frame(CheckInFrame(kind), content); },
        [this](const Status& why) { on_root_end(why); });
    HostEntry self = settings_.self;
    self.members = joined_.take();
    self.share = joined_.share();
    const std::string& text = self.machine.text;
    if (!text.empty()) self.machine_digest = identity_.secret.prove(text.data(), text.size());
    ByteWriter content;
    self.write(content);
    joined_.put_options(content, self.members);
    send(*root_, CheckInFrame::host, content);
    if (segment_->aborted()) send_abort();  // there was no connection before
}

void CheckInClient::on_root_end(const Status& why) {
    root_.reset();
    if (attached() || segment_->aborted() || joined_.complete()) return;
    FailureRecord(*segment_).raise(
        error::init_leader_lost, -1,
        fmt::format("the process where the ranks check in, the one that made the unique id, ended before all ranks had "
                    "joined: {}",
                    end_text(why)));
}

void CheckInClient::report_joined() {
    if (!up() || placement_.place == 0) return;
    JoinedReport report;
    report.members = joined_.take();
    if (report.members.empty()) return;
    report.place = placement_.place;
    report.share = joined_.share();
    ByteWriter content;
    report.write(content);
    joined_.put_options(content, report.members);
    send(*up(), CheckInFrame::joined, content);
}

void CheckInClient::send_abort() {
    const Status failure = FailureRecord(*segment_).status();
    relay_.refuse(failure.failure());
    if (!up() || std::exchange(abort_sent_, true)) return;
    ByteWriter content;
    content.put_failure(failure.failure());
    send(*up(), CheckInFrame::failed, content);
}

// Of the root, or of the parent.
void CheckInClient::on_frame(CheckInFrame kind, ByteReader& content) {
    settings_.traffic->received(kind, content.left());
    if (kind == CheckInFrame::placed && placement_.place == 0) {
        on_placed(content);
    } else if (kind == CheckInFrame::waiting) {
        obstacle_ = content.get_text();
        relay_.tell(obstacle());
    } else if (kind == CheckInFrame::refused) {
        const Failure why = content.get_failure();
        abort_sent_ = true;  // the root has sent it to all hosts
        FailureRecord(*segment_).raise(why, -1);
        relay_.refuse(why);
        close();
    } else if (kind == CheckInFrame::rank_table) {
        relay_.finish(content.rest());
        RankTable rank_table = RankTable::read(content);
        if (!content.at_end()) {
            FailureRecord(*segment_).raise(error::internal_damaged, -1, "the rank table arrived damaged");
            return;
        }
        WEFT_LOG(info, init, "the leader at place {} had {}", placement_.place, settings_.traffic->text());
        on_rank_table_(std::move(rank_table));
        close();
    }
}

void CheckInClient::on_placed(ByteReader& content) {
    placement_ = Placement::read(content);
    if (!content.at_end() || placement_.place <= 0) {
        FailureRecord(*segment_).raise(error::internal_damaged, -1, "the place of this host arrived damaged");
        return;
    }
    settings_.traffic->place = placement_.place;
    if (placement_.wants_machine) {
        ByteWriter text;
        text.put_bytes(settings_.self.machine.text);
        send(*root_, CheckInFrame::machine, text);
    }
    relay_.open(placement_.place);
    report_joined();
    if (placement_.parent != 0) connect_to_parent();
}

void CheckInClient::connect_to_parent() {
    parent_ = std::make_unique<ParentLink>(
        dispatcher_->service(), identity_, placement_, *settings_.traffic,
        ParentLink::Handlers{[this](CheckInFrame kind, ByteReader& content) { on_frame(kind, content); },
                             [this] {
                                 if (root_) send(*root_, CheckInFrame::attached);
                             },
                             [this](const std::string& why) { wait_at_root(why); },
                             [this](const Status& why) {
                                 if (segment_->aborted() || joined_.complete()) return;
                                 FailureRecord(*segment_).raise(
                                     leader_lost(placement_.leader, placement_.rank, end_text(why)), -1);
                             }});
}

void CheckInClient::wait_at_root(const std::string& why) {
    ByteWriter content;
    content.put_text(fmt::format("{} was not reached: {}", placement_.leader, why));
    parent_.reset();
    if (root_) send(*root_, CheckInFrame::detached, content);
}

}  // namespace weft::internal
