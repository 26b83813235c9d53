#include "src/calls/prepared.hpp"

#include "src/base/process_token.hpp"
#include "src/base/tombstones.hpp"
#include "src/comm/run_call.hpp"

namespace weft::internal {

weftPrepared* make_prepared(Group::Kept kept) {
    auto prepared = std::make_unique<weftPrepared>();
    prepared->process = process_token();
    prepared->kept = std::move(kept);
    return keep_tombstone(std::move(prepared));
}

Status check_prepared(const weftPrepared* prepared) {
    if (!prepared) return fail(error::argument_handle, "prepared is NULL");
    const uint64_t magic = magic_of(prepared);
    if (magic == weftPrepared::destroyed)
        return fail(error::argument_handle, "the prepared calls were destroyed before");
    if (magic != weftPrepared::living)
        return fail(error::argument_handle, "{} was not made by weftGroupPrepare", static_cast<const void*>(prepared));
    if (prepared->process != process_token())
        return fail(error::usage_forked, "the calls were prepared before fork(); a child process prepares its own");
    return ok();
}

void end_prepared(weftPrepared* prepared) {
    prepared->magic.store(weftPrepared::destroyed, std::memory_order_release);
    prepared->kept = {};
}

Status start(const weftPrepared& prepared) {
    const std::vector<QueuedCall>& calls = prepared.kept.calls;
    Group& group = Group::current();
    if (group.open()) {
        for (const QueuedCall& queued : calls) WEFT_TRY(group.check(queued));
        for (const QueuedCall& queued : calls) WEFT_TRY(group.add(queued));
        return ok();
    }
    return group.carry_out_as(*prepared.kept.statuses, [&](const std::shared_ptr<CallStatuses>& statuses) -> Status {
        if (calls.size() != 1 || is_queued(calls[0].handle, calls[0].call)) return dispatch(calls, statuses);
        // A single call runs without a copy.
        const QueuedCall& only = calls[0];
        Status done = check_handle(only.handle);
        if (done) {
            Entered entered(only.handle);
            if (entered.entered()) {
                entered.settle();
                done = run(only.communicator(), {&only.call, 1});
            } else {
                done = entered.refused();
            }
        }
        if (done) return statuses->done(only.number), ok();
        done = statuses->fail(only.number, only.handle, done);
        only.handle->keep_error(done);
        return done;
    });
}

}  // namespace weft::internal
