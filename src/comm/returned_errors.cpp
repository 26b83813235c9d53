#include "src/comm/returned_errors.hpp"

#include <map>
#include <mutex>
#include <set>

#include "src/base/launcher_notes.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal {

namespace {

struct Entry {
    std::shared_ptr<Segment> group;
    std::shared_ptr<Membership> membership;  // null: one host
    int rank;
};
struct Ranks {
    std::mutex mutex;
    std::map<uint64_t, Entry> all;
    uint64_t next = 1;
};
Ranks& ranks_of_process() {
    static PerProcess<Ranks> processes;
    return processes.get();
}

bool may_end_process(weftResult_t code) {
    switch (code) {
        case weftRemoteError:
        case weftTimeout:
        case weftMismatch:
        case weftSystemError:
        case weftInternalError:
        case weftUnhandledCudaError: return true;
        default: return false;
    }
}

}  // namespace

ReturnedErrorScope::ReturnedErrorScope(std::shared_ptr<Segment> group, std::shared_ptr<Membership> membership, int rank)
    : process_(process_token()) {
    Ranks& ranks = ranks_of_process();
    std::lock_guard lock(ranks.mutex);
    ranks.all.emplace(number_ = ranks.next++, Entry{std::move(group), std::move(membership), rank});
    note_for_launcher(LauncherNote::joined);
}

ReturnedErrorScope::~ReturnedErrorScope() {
    if (process_ != process_token()) return;  // after fork, the child has none of the ranks
    Entry last{};                             // released outside the lock
    Ranks& ranks = ranks_of_process();
    std::lock_guard lock(ranks.mutex);
    if (const auto place = ranks.all.find(number_); place != ranks.all.end()) {
        last = std::move(place->second);
        ranks.all.erase(place);
    }
}

void record_returned_error(const Status& failure) {
    const bool by_code = may_end_process(failure.code());
    if (by_code) note_for_launcher(LauncherNote::told);
    std::set<std::shared_ptr<Membership>> memberships;  // released outside the lock
    Ranks& ranks = ranks_of_process();
    {
        std::lock_guard lock(ranks.mutex);
        for (const auto& [number, entry] : ranks.all) {
            // A communicator may die of a wrong option or call of one rank, too.
            if (!by_code && !entry.group->aborted()) continue;
            RankRow& row = entry.group->row(entry.rank);
            const auto position = row.position.read();
            if (!position) continue;  // the rank is entering a call
            if (row.returned_error.write(position->entered, failure.failure())) entry.group->doorbell().ring();
            if (entry.membership) memberships.insert(entry.membership);
        }
    }
    for (const auto& membership : memberships) membership->report_failure();
}

}  // namespace weft::internal
