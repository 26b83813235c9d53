#include "src/control/check_in_client.hpp"

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/segment/failure_record.hpp"

namespace weft::internal {

namespace {
constexpr int64_t retry_first_us = 20'000, retry_most_us = 1'000'000;
constexpr int64_t listener_closed_us = 8'000'000;  // long enough for a better error of another rank to come first
constexpr int64_t root_silent_us = 2'500'000;      // the root sends the missing ranks every second
constexpr int64_t parent_patience_us = 3'000'000;  // for the parent to accept; then this leader waits at the root
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
          traffic_),
      retry_us_(retry_first_us) {}

void CheckInClient::end() {
    if (root_) root_->part();
    if (parent_) parent_->part();
    close();
    relay_.end();
}

void CheckInClient::close() {
    root_.reset();
    parent_.reset();
    connect_.reset();
    dispatcher_->service().cancel(timer_);
}

// Then no rank needs the root, and its process may have closed it already.
bool CheckInClient::all_here() const {
    return int(segment_->header().joined.load(std::memory_order_acquire)) == segment_->ranks();
}

std::string CheckInClient::obstacle() const {
    if (connect_ && placement_.place == 0)
        if (const std::string pending = connect_->pending(); !pending.empty()) return "the root at " + pending;
    const ControlConnection* const up = this->up();
    const int64_t silent_us = up ? now_us() - up->heard_us : 0;
    if (const std::string lost = up ? up->lost_packets() : ""; !lost.empty())
        return fmt::format("{}{}{}", obstacle_, obstacle_.empty() ? "" : "; ", lost);
    if (silent_us < root_silent_us) return obstacle_;
    const std::string missing = up->missing_packets();
    return fmt::format("{}{}{} has said nothing for {} ms{}{}", obstacle_, obstacle_.empty() ? "" : "; ",
                       attached_ ? placement_.leader : "the root at " + up->peer().text(), silent_us / 1000,
                       missing.empty() ? "" : "; ", missing);
}

void CheckInClient::tick() {
    const ControlConnection* const up = this->up();
    if (!up || now_us() - up->heard_us < root_silent_us || now_us() - relay_.told_us() < tell_apart_us) return;
    relay_.tell(obstacle());
}

void CheckInClient::send(ControlConnection& link, CheckInFrame kind, const ByteWriter& content) {
    traffic_.sent(kind, content.bytes().size());
    link.send(uint32_t(kind), content);
}

void CheckInClient::connect() {
    connect_ = std::make_unique<AsyncConnect>(
        dispatcher_->service(), identity_, net::Purpose{net::checkin, 0, 0},
        net::TargetProcess{.process = 0, .root = true}, settings_.root, [this](Result<Fd> socket) {
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
    refused_us_ = !connect_->refused() ? 0 : refused_us_ == 0 ? now_us() : refused_us_;
    connect_.reset();
    if (all_here()) return;
    if (settings_.listener_existed && refused_us_ != 0 && now_us() - refused_us_ > listener_closed_us) {
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
    timer_ = dispatcher_->service().after(retry_us_, [this] { connect(); });
    retry_us_ = std::min(retry_us_ * 2, retry_most_us);
}

std::vector<RankEntry> CheckInClient::newly_joined() {
    std::vector<RankEntry> members;
    const size_t joined = segment_->header().joined.load(std::memory_order_acquire);
    for (int rank = 0; rank < segment_->ranks() && members_.size() < joined; ++rank) {
        const int pid = segment_->rank_info(rank).pid.load(std::memory_order_acquire);
        if (pid != 0 && members_.insert(rank).second) {
            const RankRow& row = segment_->row(rank);
            members.push_back(
                {rank, pid, segment_->rank_info(rank).cpu, segment_->rank_info(rank).networks, row.gpu.facts});
            share_.add(row.cpus, row.quota);
        }
    }
    return members;
}

void CheckInClient::put_members(ByteWriter& to, const std::vector<RankEntry>& members) const {
    for (const RankEntry& member : members)
        if (member.rank == 0) {
            to.put(segment_->header().agreed);
            const AgreedTexts texts = AgreedTexts::of(*segment_);
            to.put_bytes(texts.tuning);
            to.put_failure(texts.refusal);
        }
}

void CheckInClient::check_in(Fd socket) {
    connect_.reset();
    obstacle_.clear();
    ++traffic_.connections;
    root_ = std::make_unique<ControlConnection>(
        dispatcher_->service(), std::move(socket),
        [this](uint32_t kind, ByteReader& content) { on_frame(CheckInFrame(kind), content); },
        [this](const Status& why) { on_root_end(why); });
    HostEntry self = settings_.self;
    self.members = newly_joined();
    self.share = share_;
    const std::string& text = self.machine.text;
    if (!text.empty()) self.machine_digest = identity_.secret.prove(text.data(), text.size());
    ByteWriter content;
    self.write(content);
    put_members(content, self.members);
    send(*root_, CheckInFrame::host, content);
    if (segment_->aborted()) send_abort();  // there was no connection before
}

void CheckInClient::on_root_end(const Status& why) {
    root_.reset();
    if (attached_ || segment_->aborted() || all_here()) return;
    FailureRecord(*segment_).raise(
        error::init_leader_lost, -1,
        fmt::format("the process where the ranks check in, the one that made the unique id, ended before all ranks had "
                    "joined: {}",
                    end_text(why)));
}

void CheckInClient::report_joined() {
    if (!up() || placement_.place == 0) return;
    JoinedReport report;
    report.members = newly_joined();
    if (report.members.empty()) return;
    report.place = placement_.place;
    report.share = share_;
    ByteWriter content;
    report.write(content);
    put_members(content, report.members);
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
    traffic_.received(kind, content.left());
    if (kind == CheckInFrame::placed && placement_.place == 0) {
        on_placed(content);
    } else if (kind == CheckInFrame::taken && parent_ && !attached_) {
        attached_ = true;
        if (root_) send(*root_, CheckInFrame::attached);
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
        WEFT_LOG(info, init, "the leader at place {} had {}", placement_.place, traffic_.text());
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
    traffic_.place = placement_.place;
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
    connect_ = std::make_unique<AsyncConnect>(
        dispatcher_->service(), identity_,
        net::Purpose{net::relay, uint32_t(placement_.place), uint64_t(placement_.parent)},
        net::TargetProcess{.process = placement_.process}, placement_.addresses, [this](Result<Fd> socket) {
            if (socket) return attach(std::move(*socket));
            detach(socket.status().sentence());
        });
    timer_ = dispatcher_->service().after(parent_patience_us, [this] {
        const std::string pending = connect_->pending();
        detach(pending.empty() ? "no connection" : pending);
    });
}

void CheckInClient::attach(Fd socket) {
    connect_.reset();
    dispatcher_->service().cancel(timer_);
    ++traffic_.connections;
    parent_ = std::make_unique<ControlConnection>(
        dispatcher_->service(), std::move(socket),
        [this](uint32_t kind, ByteReader& content) { on_frame(CheckInFrame(kind), content); },
        [this](const Status& why) { on_parent_end(why); });
    send(*parent_, CheckInFrame::attach);
}

// Before `attach` is sent, so the parent does not count this leader.
void CheckInClient::detach(const std::string& why) {
    connect_.reset();
    dispatcher_->service().cancel(timer_);
    if (!root_) return;
    ByteWriter content;
    content.put_text(fmt::format("{} was not reached: {}", placement_.leader, why));
    send(*root_, CheckInFrame::detached, content);
}

void CheckInClient::on_parent_end(const Status& why) {
    parent_.reset();
    if (segment_->aborted() || all_here()) return;
    FailureRecord(*segment_).raise(leader_lost(placement_.leader, placement_.rank, end_text(why)), -1);
}

}  // namespace weft::internal
