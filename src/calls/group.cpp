#include "src/calls/group.hpp"

#include <algorithm>

#include "src/base/log.hpp"

namespace weft::internal {

Group& Group::current() {
    static thread_local Group group;
    return group;
}

Group::~Group() {
    if (depth_ == 0) return;
    close();
    WEFT_LOG(warn, coll, "a thread ends inside weftGroupStart, and calls were never begun: {}; call weftGroupEnd",
             calls_.size() + joinings_.size());
}

void Group::start() {
    if (depth_ == 0) {
        if (!collected_ || collected_.use_count() > 1) collected_ = std::make_shared<CallStatuses>();
        collected_->clear();
        open_groups.fetch_add(1, std::memory_order_relaxed);
    }
    ++depth_;
}

void Group::close() {
    depth_ = 0;
    open_groups.fetch_sub(1, std::memory_order_relaxed);
}

void Group::begin_as(const CallStatuses& prepared) {
    if (!ended_ || ended_.use_count() > 1) ended_ = std::make_shared<CallStatuses>();
    ended_->begin_as(prepared);
}

Status Group::check(const QueuedCall& queued) const {
    const auto place =
        std::find_if(calls_.rbegin(), calls_.rend(), [&](const QueuedCall& c) { return c.handle == queued.handle; });
    if (place == calls_.rend() || goes_with(queued, *place)) return ok();
    return fail(error::group_streams,
                "the calls of a group on one communicator must go to one stream, or all to none; this call names "
                "another stream than the call before it");
}

Status Group::add(QueuedCall queued) {
    WEFT_TRY(check(queued));
    if (calls_.empty()) calls_.reserve(usual_);
    queued.number = collected_->add_part();
    calls_.push_back(std::move(queued));
    return ok();
}

Status Group::hold(QueuedCall queued) {
    const auto communicator = queued.handle->share();  // another thread may abort the communicator now
    if (!communicator) return fail(error::argument_communicator, "the communicator was destroyed or aborted before");
    WEFT_TRY(add(std::move(queued)));
    communicator->context().hold_call();
    return ok();
}

Status Group::add_or_run(weftComm* handle, std::shared_ptr<AsyncOperation> async_operation) {
    QueuedCall queued(handle, std::move(async_operation));
    if (open()) return hold(std::move(queued));
    std::vector<QueuedCall> alone;
    alone.push_back(std::move(queued));
    return dispatch(std::move(alone));
}

void Group::add(Joining joining) {
    joining.number = collected_->add_part();
    joinings_.push_back(std::move(joining));
}

bool Group::holds(const weftComm* handle) const {
    return std::any_of(calls_.begin(), calls_.end(),
                       [&](const QueuedCall& queued) {
                           return queued.handle == handle ||
                                  (queued.async_operation && queued.async_operation->child() == handle);
                       }) ||
           std::any_of(joinings_.begin(), joinings_.end(),
                       [&](const Joining& joining) { return joining.handle.get() == handle; });
}

Status Group::end() {
    if (depth_ == 0) return fail(error::group_not_open, "weftGroupEnd without weftGroupStart on this thread");
    if (depth_ > 1) return --depth_, ok();
    close();
    usual_ = calls_.size();
    ended_.swap(collected_);
    return carry_out([joinings = std::exchange(joinings_, {}),
                      calls = std::exchange(calls_, {})](const std::shared_ptr<CallStatuses>& statuses) mutable {
        Status joined = dispatch(std::move(joinings), statuses);
        // If joining failed, the calls still run, because peers wait for them.
        Status driven = dispatch(std::move(calls), statuses);
        const bool failed = !joined && joined.code() != weftInProgress;
        return failed || driven ? std::move(joined) : std::move(driven);
    });
}

Result<Group::Kept> Group::end_prepared() {
    if (depth_ == 0) return fail(error::group_not_open, "weftGroupPrepare without weftGroupStart on this thread");
    if (depth_ > 1)
        return --depth_, fail(error::group_not_preparable,
                              "weftGroupPrepare inside another group: only the outermost group can be prepared");
    close();
    for (const QueuedCall& queued : calls_)
        if (Entered entered(queued.handle); entered.entered()) queued.handle->communicator->context().release_calls();
    ended_.swap(collected_);
    const bool joins = !std::exchange(joinings_, {}).empty();
    Kept kept{std::exchange(calls_, {}), ended_};
    if (joins || std::any_of(kept.calls.begin(), kept.calls.end(),
                             [](const QueuedCall& queued) { return queued.async_operation != nullptr; })) {
        Status refusal = fail(error::group_not_preparable,
                              "weftGroupPrepare: the group makes a communicator or a window, or ends one, which "
                              "happens once: prepare only collectives, messages and one-sided calls");
        ended_->refuse(refusal);
        return refusal;
    }
    auto statuses = std::make_shared<CallStatuses>();
    statuses->begin_as(*ended_);
    kept.statuses = std::move(statuses);
    ended_->defer();
    return kept;
}

}  // namespace weft::internal
