#include "src/comm/group.hpp"

#include <algorithm>

#include "src/base/log.hpp"

namespace weft {

Group& Group::current() {
    static thread_local Group group;
    return group;
}

Group::~Group() {
    if (depth_ > 0)
        WEFT_LOG(warn, coll, "a thread ends inside weftGroupStart, and calls were never begun: {}; call weftGroupEnd",
                 calls_.size() + joinings_.size());
}

Status Group::check(const QueuedCall& queued) const {
    const auto place =
        std::find_if(calls_.rbegin(), calls_.rend(), [&](const QueuedCall& c) { return c.handle == queued.handle; });
    if (place == calls_.rend() || goes_with(queued, *place)) return ok();
    return fail(weftInvalidUsage,
                "a group's calls on one communicator go to one stream, or all to none; this one's stream is "
                "another than the last one's");
}

Status Group::add(QueuedCall queued) {
    WEFT_TRY(check(queued));
    if (calls_.empty()) calls_.reserve(usual_);
    calls_.push_back(std::move(queued));
    return ok();
}

Status Group::add_or_run(weftComm* handle, std::shared_ptr<Undertaking> undertaking) {
    QueuedCall queued(handle, std::move(undertaking));
    if (open()) return add(std::move(queued));
    std::vector<QueuedCall> alone;
    alone.push_back(std::move(queued));
    return submit(std::move(alone));
}

bool Group::holds(const weftComm* handle) const {
    return std::any_of(calls_.begin(), calls_.end(),
                       [&](const QueuedCall& queued) {
                           return queued.handle == handle ||
                                  (queued.undertaking && queued.undertaking->child() == handle);
                       }) ||
           std::any_of(joinings_.begin(), joinings_.end(),
                       [&](const Joining& joining) { return joining.handle.get() == handle; });
}

Status Group::end() {
    if (depth_ == 0) return fail(weftInvalidUsage, "weftGroupEnd without weftGroupStart on this thread");
    if (--depth_ > 0) return ok();
    std::vector<Joining> joinings = std::exchange(joinings_, {});
    std::vector<QueuedCall> calls = std::exchange(calls_, {});
    usual_ = calls.size();
    Status joined = submit(std::move(joinings));
    // Whatever became of the new ones: peers wait for the calls on communicators that were there before.
    Status driven = submit(std::move(calls));
    const bool failed = !joined && joined.code() != weftInProgress;
    return failed || driven ? std::move(joined) : std::move(driven);
}

Result<std::vector<QueuedCall>> Group::end_prepared() {
    if (depth_ == 0) return fail(weftInvalidUsage, "weftGroupPrepare without weftGroupStart on this thread");
    if (depth_ > 1)
        return --depth_,
               fail(weftInvalidUsage, "weftGroupPrepare inside another group: only the outermost is prepared");
    depth_ = 0;
    const bool joins = !std::exchange(joinings_, {}).empty();
    std::vector<QueuedCall> calls = std::exchange(calls_, {});
    if (joins || std::any_of(calls.begin(), calls.end(), [](const QueuedCall& queued) { return queued.undertaking; }))
        return fail(
            weftInvalidUsage,
            "weftGroupPrepare: the group makes a communicator or a window, or ends one, which happens once; prepare "
            "calls alone");
    return calls;
}

}  // namespace weft
