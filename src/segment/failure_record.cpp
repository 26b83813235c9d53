#include "src/segment/failure_record.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "src/base/clock.hpp"

namespace weft::internal {

bool FailureRecord::raise(ErrorId error, int rank, std::string_view sentence, const FailureFacts& facts) const {
    AbortRecord& record = segment_->header().abort;
    uint32_t none = 0;
    if (!record.state.compare_exchange_strong(none, 1)) return false;
    std::string_view(row_of(error).id).copy(record.id, sizeof record.id - 1);
    record.rank = rank;
    record.facts = facts;
    const size_t length = std::min(sentence.size(), sizeof record.sentence - 1);
    memcpy(record.sentence, sentence.data(), length);
    record.sentence[length] = 0;
    record.state.store(2, std::memory_order_release);
    segment_->wake_sleepers();
    syscall(SYS_futex, &segment_->header().joined, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    segment_->doorbell().ring();
    return true;
}

Status FailureRecord::status() const {
    const AbortRecord& record = segment_->header().abort;
    const int64_t patience = now_us() + 200'000;
    while (record.state.load(std::memory_order_acquire) == 1 && now_us() < patience) sched_yield();
    switch (record.state.load(std::memory_order_acquire)) {
        case 0: return ok();
        case 1: return fail(error::rank_failed, "a rank died, or was stopped, while it was reporting an error");
        default:
            return Status(
                Failure{error_named(record.id).value_or(error::internal_state), record.sentence, record.facts});
    }
}

}  // namespace weft::internal
