#include "src/control/health_table.hpp"

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

namespace {

// The health of a rank in a frame.
struct RankHealth {
    int32_t rank;
    uint32_t state;  // RankState
    uint32_t stopped;
    uint32_t has_returned_error;  // 1: the failure that was returned to the rank follows
    uint64_t entered, finished;
    // Durations, 0: not so; see RankRow.
    int64_t in_function_us, partner_wait_us, held_us;
    uint64_t partner_wait;
    uint64_t wanted, failed;  // see SplitRow
    uint32_t held_calls;
    uint32_t kernels_ended;  // GpuRow::left
    Operation operation;
};

constexpr int64_t query_apart_us = 200'000;  // each query costs every host a message
constexpr int64_t report_patience_us = 500'000;
constexpr int rows_at_once = 32;  // rows in a block that gets memory at once: some pages

}  // namespace

HealthTable::HealthTable(Service& service, std::shared_ptr<Segment> segment, TreeLinks& tree_links, int host, int hosts,
                         std::function<void()> before_report)
    : before_report_(std::move(before_report)),
      service_(&service),
      segment_(std::move(segment)),
      tree_links_(&tree_links),
      host_(host),
      hosts_(hosts),
      backed_(size_t(segment_->ranks() + rows_at_once - 1) / rows_at_once) {}

HealthTable::~HealthTable() { service_->cancel(timer_); }

void HealthTable::request() {
    if (!top()) return tree_links_->send(HostTree::parent(host_), ControlFrame::query_request);
    if (querying_) return;
    const int64_t wait_us = queried_us_ + query_apart_us - now_us();
    if (wait_us <= 0) return query(number_ + 1);
    if (timer_ == 0)
        timer_ = service_->after(wait_us, [this] {
            timer_ = 0;
            query(number_ + 1);
        });
}

// Queries the subtree and reports when all of it has, or at a deadline.
void HealthTable::query(uint32_t number) {
    before_report_();
    number_ = number;
    querying_ = true;
    queried_before_us_ = std::exchange(queried_us_, now_us());
    gathered_ = {};
    reports_due_.clear();
    const std::vector<int> ranks = ours();
    for (const int rank : ranks) put(rank, gathered_);
    gathered_count_ = uint32_t(ranks.size());
    ByteWriter content;
    content.put(number);
    tree_links_->visit([&](int child) {
        if (child < host_ || !tree_links_->linked(child)) return;
        reports_due_.insert(child);
        tree_links_->send(child, ControlFrame::query, content);
    });
    if (reports_due_.empty()) return report();
    service_->cancel(timer_);
    // Hosts nearer to the top wait longer, so that a silent host hides only itself.
    int levels = 1;
    for (int below = host_ * HostTree::arity + 1; below < hosts_; below = below * HostTree::arity + 1) ++levels;
    timer_ = service_->after(levels * report_patience_us, [this] {
        timer_ = 0;
        report();
    });
}

void HealthTable::put(int rank, ByteWriter& to) const {
    const RankRow& row = segment_->row(rank);
    RankHealth entry{};
    entry.rank = rank;
    // Read before the other words: a rank that has left makes no call, so its newest call is final.
    entry.state = uint32_t(row.state.load(std::memory_order_acquire));
    const auto position = row.position.read();
    const bool left = entry.state == uint32_t(RankState::left);
    entry.stopped = Liveness(*segment_).stopped(rank);
    // A process takes its kernels with it.
    entry.kernels_ended =
        row.gpu.left.load(std::memory_order_acquire) != 0 || (left && !Liveness(*segment_).alive(rank));
    const auto age_us = [now = now_us()](const std::atomic<int64_t>& since) -> int64_t {
        const int64_t since_us = since.load(std::memory_order_relaxed);
        return since_us == 0 ? 0 : std::max<int64_t>(1, now - since_us);
    };
    entry.in_function_us = age_us(row.in_function_us);
    entry.partner_wait_us = age_us(row.partner_wait_us);
    entry.held_us = age_us(row.held.since_us);
    entry.partner_wait = row.partner_wait.load(std::memory_order_relaxed);
    entry.wanted = row.split.wanted.load(std::memory_order_acquire);
    entry.failed = row.split.failed.load(std::memory_order_acquire);
    entry.held_calls = row.held.calls.load(std::memory_order_relaxed);
    if (position) {
        entry.entered = position->entered;
        entry.finished = position->finished;
        entry.operation = position->operation;
    }
    const auto error = position ? row.returned_error.read(position->entered) : std::nullopt;
    entry.has_returned_error = error.has_value();
    to.put(entry);
    if (error) to.put_failure(*error);
}

std::vector<int> HealthTable::ours() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < segment_->ranks(); ++rank) {
        const int host = segment_->rank_info(rank).host;
        const auto gone = [&] {
            const RankState state = segment_->row(rank).state.load(std::memory_order_acquire);
            return state == RankState::left || state == RankState::dead;
        };
        if (host == host_ || (tree_links_->ended(HostTree::next(host_, host)) && gone())) ranks.push_back(rank);
    }
    return ranks;
}

ByteWriter HealthTable::table_of(const std::vector<int>& ranks) const {
    ByteWriter content;
    content.put(uint32_t(ranks.size()));
    for (const int rank : ranks) put(rank, content);
    return content;
}

void HealthTable::on_report(int host, ByteReader& content) {
    if (content.get<uint32_t>() != number_ || reports_due_.erase(host) == 0) return;  // late
    const uint32_t count = content.get<uint32_t>();
    for (uint32_t i = 0; i < count && content.ok(); ++i) {
        const auto entry = content.get<RankHealth>();
        gathered_.put(entry);
        if (entry.has_returned_error) gathered_.put_failure(content.get_failure());
    }
    gathered_count_ += count;
    if (reports_due_.empty()) report();
}

void HealthTable::on_end(int host) {
    if (reports_due_.erase(host) > 0 && reports_due_.empty()) report();
}

void HealthTable::report() {
    if (!std::exchange(querying_, false)) return;
    service_->cancel(std::exchange(timer_, 0));
    ByteWriter content;
    content.put(number_);
    content.put(gathered_count_);
    content.append(gathered_.bytes().data(), gathered_.bytes().size());
    if (!top()) return tree_links_->send(HostTree::parent(host_), ControlFrame::report, content);
    tree_links_->flood(ControlFrame::answer, content);
    ByteReader own(content.bytes().data(), content.bytes().size());
    on_answer(own);
}

// Passes the earliest time at which the answer was true. The top host started the query, so it knows the time. Another
// host knows only that this query started after the previous one was answered, so after the previous one came here.
void HealthTable::on_answer(ByteReader& content) {
    const bool latest = content.get<uint32_t>() == number_;
    read_table(content, !latest ? 0 : top() ? queried_us_ : queried_before_us_);
}

// Whether the rank's row has memory.
bool HealthTable::back(int rank) {
    const int block = rank / rows_at_once, first = block * rows_at_once;
    if (backed_[size_t(block)]) return true;
    if (Status status = segment_->back_rows(first, std::min(rows_at_once, segment_->ranks() - first)); !status) {
        FailureRecord(*segment_).raise(status, -1);
        return false;
    }
    backed_[size_t(block)] = true;
    return true;
}

void HealthTable::read_table(ByteReader& content, int64_t known_us) {
    const int64_t now = now_us();
    for (uint32_t count = content.get<uint32_t>(); count > 0 && content.ok(); --count) {
        const auto entry = content.get<RankHealth>();
        const Failure error = entry.has_returned_error ? content.get_failure() : Failure();
        if (!content.ok() || entry.rank < 0 || entry.rank >= segment_->ranks() || segment_->local(entry.rank)) continue;
        if (!back(entry.rank)) return;
        RankRow& row = segment_->row(entry.rank);
        // Tables come on several paths, so an older one may come last.
        const auto known = row.position.read();
        if (known && entry.entered > known->entered) row.position.enter(entry.entered, entry.operation);
        if (known && entry.finished > known->finished) row.position.finish(entry.finished);
        // The error is written before the end that it explains. An answer may be older than the leader's newest errors.
        if (entry.has_returned_error && known && entry.entered >= known->entered)
            row.returned_error.write(entry.entered, error);
        const bool left = entry.state == uint32_t(RankState::left);
        if (left || row.state.load(std::memory_order_relaxed) != RankState::left) {
            row.split.wanted.store(entry.wanted, std::memory_order_relaxed);
            row.split.failed.store(entry.failed, std::memory_order_relaxed);
        }
        if (left) row.state.store(RankState::left, std::memory_order_release);
        if (entry.kernels_ended) row.gpu.left.store(1, std::memory_order_release);
        if (entry.state == uint32_t(RankState::dead)) mark_dead(*segment_, entry.rank);
        row.remote.stopped.store(entry.stopped, std::memory_order_relaxed);
        const auto since = [now](int64_t age_us) { return age_us == 0 ? 0 : now - age_us; };
        row.in_function_us.store(since(entry.in_function_us), std::memory_order_relaxed);
        row.partner_wait.store(entry.partner_wait, std::memory_order_relaxed);
        row.partner_wait_us.store(since(entry.partner_wait_us), std::memory_order_relaxed);
        row.held.calls.store(entry.held_calls, std::memory_order_relaxed);
        row.held.since_us.store(since(entry.held_us), std::memory_order_relaxed);
        row.remote.heard_us.store(now, std::memory_order_release);
        if (known_us != 0) row.remote.known_us.store(known_us, std::memory_order_release);
    }
    segment_->wake_sleepers();
}

}  // namespace weft::internal
