#include "src/control/oob_forwarder.hpp"

#include <utility>

#include "src/segment/failure_record.hpp"
#include "src/segment/oob_store.hpp"

namespace weft::internal {

static constexpr int64_t unreachable_us = 3'000'000;  // the cause is usually known within this time

OobForwarder::OobForwarder(std::shared_ptr<Segment> segment, const RankTable& rank_table, TreeLinks& tree_links,
                           int host, Clock clock)
    : segment_(std::move(segment)), rank_table_(&rank_table), tree_links_(&tree_links), host_(host), clock_(clock) {}

void OobForwarder::send_pending() {
    for (const int rank : segment_->locals())
        while (const auto* entry = OobStore(*segment_).next_outgoing(rank, sent_[rank])) forward(*entry);
}

bool OobForwarder::on_frame(ByteReader& content) {
    const auto entry = content.get<OobEntry>();
    if (!content.at_end() || entry.to < 0 || entry.to >= segment_->ranks()) return false;
    if (segment_->rank_info(entry.to).host != host_) return forward(entry), true;
    if (Status status = OobStore(*segment_).deliver(entry); !status) FailureRecord(*segment_).raise(status, -1);
    return true;
}

void OobForwarder::forward(const OobEntry& entry) {
    const int next = HostTree::next(host_, segment_->rank_info(entry.to).host);
    if (tree_links_->ended(next)) {
        if (unreachable_.empty()) unreachable_since_us_ = clock_();
        unreachable_.insert(entry.to);
        return;
    }
    ByteWriter content;
    content.put(entry);
    tree_links_->send(next, ControlFrame::oob, content);
}

bool OobForwarder::unreachable_due() const {
    return has_unreachable() && clock_() - unreachable_since_us_ >= unreachable_us;
}

bool OobForwarder::report_unreachable() {
    bool raised = false;
    for (const int rank : std::exchange(unreachable_, {})) {
        const RankState state = segment_->row(rank).state.load(std::memory_order_acquire);
        if (state == RankState::left || state == RankState::dead || segment_->aborted()) continue;
        const int target = segment_->rank_info(rank).host;
        raised |= FailureRecord(*segment_).raise(
            error::host_lost, -1,
            fmt::format("{} cannot be reached for the first time: frames to {} pass through {}, "
                        "whose leader has ended",
                        segment_->name_of(rank), rank_table_->hosts[size_t(target)].name,
                        rank_table_->hosts[size_t(HostTree::next(host_, target))].name),
            {.rank = rank});
    }
    return raised;
}

}  // namespace weft::internal
