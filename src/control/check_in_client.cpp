#include "src/control/check_in_client.hpp"

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/control/check_in.hpp"
#include "src/segment/failure_record.hpp"

namespace weft::internal {

namespace {
constexpr int64_t retry_first_us = 20'000, retry_most_us = 1'000'000;
constexpr int64_t listener_closed_us = 8'000'000;  // long enough for a better error of another rank to come first
constexpr int64_t root_silent_us = 2'500'000;      // the root sends the missing ranks every second
}  // namespace

CheckInClient::CheckInClient(Service& service, std::shared_ptr<Segment> segment, const net::Identity& identity,
                             CheckInSettings settings, OnRankTable on_rank_table)
    : service_(&service),
      segment_(std::move(segment)),
      identity_(identity),
      settings_(std::move(settings)),
      on_rank_table_(std::move(on_rank_table)),
      retry_us_(retry_first_us) {}

void CheckInClient::end() {
    if (root_) root_->part();
    root_.reset();
    connect_.reset();
    service_->cancel(retry_timer_);
}

// Then no rank needs the root, and its process may have closed it already.
bool CheckInClient::all_here() const {
    return int(segment_->header().joined.load(std::memory_order_acquire)) == segment_->ranks();
}

std::string CheckInClient::obstacle() const {
    if (connect_)
        if (const std::string pending = connect_->pending(); !pending.empty()) return "the root at " + pending;
    const int64_t silent_us = root_ ? now_us() - root_->heard_us : 0;
    if (const std::string lost = root_ ? root_->lost_packets() : ""; !lost.empty())
        return fmt::format("{}{}{}", obstacle_, obstacle_.empty() ? "" : "; ", lost);
    if (silent_us < root_silent_us) return obstacle_;
    const std::string missing = root_->missing_packets();
    return fmt::format("{}{}the root at {} has said nothing for {} ms{}{}", obstacle_, obstacle_.empty() ? "" : "; ",
                       root_->peer().text(), silent_us / 1000, missing.empty() ? "" : "; ", missing);
}

void CheckInClient::connect() {
    connect_ = std::make_unique<AsyncConnect>(
        *service_, identity_, net::Purpose{net::checkin, 0, 0}, net::TargetProcess{.process = 0, .root = true},
        settings_.root, [this](Result<Fd> socket) {
            if (socket) return check_in(std::move(*socket));
            const Status& why = socket.status();
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
                    fmt::format("for {} s no process has listened where the ranks check in ({}): the process there "
                                "has left, or the addresses lead elsewhere from here",
                                listener_closed_us / 1'000'000, why.sentence()));
                return;
            }
            const weftResult_t code = row_of(error).code;
            if (code == weftMismatch || code == weftInvalidUsage || astray) {
                FailureRecord(*segment_).raise(error, -1, astray ? obstacle_ + settings_.root_hint : why.sentence());
                return;
            }
            // The root may not run yet, or be busy.
            retry_timer_ = service_->after(retry_us_, [this] { connect(); });
            retry_us_ = std::min(retry_us_ * 2, retry_most_us);
        });
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
    root_ = std::make_unique<ControlConnection>(
        *service_, std::move(socket), [this](uint32_t kind, ByteReader& content) { on_frame(kind, content); },
        [this](const Status& why) {
            root_.reset();
            if (segment_->aborted() || all_here()) return;
            FailureRecord(*segment_).raise(
                error::init_leader_lost, -1,
                fmt::format("the process where the ranks check in, the one that made the unique id, ended "
                            "before all ranks had joined: {}",
                            why ? "it closed the connection" : why.sentence()));
        });
    HostEntry self = settings_.self;
    self.members = newly_joined();
    self.share = share_;
    ByteWriter content;
    self.write(content);
    put_members(content, self.members);
    root_->send(uint32_t(CheckInFrame::host), content);
    if (segment_->aborted()) send_abort();  // there was no connection before
}

void CheckInClient::report_joined() {
    if (!root_) return;
    const auto members = newly_joined();
    if (members.empty()) return;
    ByteWriter content;
    put_share(content, share_);
    content.put(uint32_t(members.size()));
    for (const RankEntry& member : members) member.write(content);
    put_members(content, members);
    root_->send(uint32_t(CheckInFrame::joined), content);
}

void CheckInClient::send_abort() {
    if (!root_ || std::exchange(abort_sent_, true)) return;
    const Status failure = FailureRecord(*segment_).status();
    ByteWriter content;
    content.put_failure(failure.failure());
    root_->send(uint32_t(CheckInFrame::failed), content);
}

void CheckInClient::on_frame(uint32_t kind, ByteReader& content) {
    if (kind == uint32_t(CheckInFrame::waiting)) {
        obstacle_ = content.get_text();
    } else if (kind == uint32_t(CheckInFrame::refused)) {
        const Failure why = content.get_failure();
        abort_sent_ = true;  // the root has sent it to all hosts
        FailureRecord(*segment_).raise(why, -1);
        root_.reset();
    } else if (kind == uint32_t(CheckInFrame::rank_table)) {
        RankTable rank_table = RankTable::read(content);
        if (!content.at_end()) {
            FailureRecord(*segment_).raise(error::internal_damaged, -1, "the rank table arrived damaged");
            return;
        }
        on_rank_table_(std::move(rank_table));
        root_.reset();
    }
}

}  // namespace weft::internal
