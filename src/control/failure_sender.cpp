#include "src/control/failure_sender.hpp"

#include "src/base/clock.hpp"
#include "src/segment/failure_record.hpp"

namespace weft::internal {

static constexpr int64_t patience_us = 1'000'000;  // for neighbours' kernels to acknowledge a failure

void FailureSender::send_abort(int except) {
    if (std::exchange(abort_sent_, true)) return;
    sent_us_ = now_us();
    const Status failure = FailureRecord(*segment_).status();
    ByteWriter content;
    content.put(int32_t(segment_->header().abort.rank));
    content.put_failure(failure.failure());
    tree_links_->flood(ControlFrame::failed, content, except);
}

void FailureSender::send_returned_errors() {
    std::vector<int> changed;
    for (const int rank : segment_->locals()) {
        const uint64_t calls = segment_->row(rank).returned_error.calls.load(std::memory_order_acquire);
        if (calls != 0 && std::exchange(returned_[rank], calls) != calls) changed.push_back(rank);
    }
    if (changed.empty()) return;
    sent_us_ = now_us();
    tree_links_->flood(ControlFrame::table, health_table_->table_of(changed));
}

bool FailureSender::arrived() const { return tree_links_->arrived() || now_us() > sent_us_ + patience_us; }

}  // namespace weft::internal
