#include "src/comm/prepared.hpp"

#include "src/comm/group.hpp"
#include "src/comm/quarantine.hpp"

namespace weft {

weftPrepared* make_prepared(std::vector<QueuedCall> calls) {
    auto prepared = std::make_unique<weftPrepared>();
    prepared->process = process_token();
    prepared->calls = std::move(calls);
    return keep_for_ever(std::move(prepared));
}

Status check_prepared(const weftPrepared* prepared) {
    if (!prepared) return fail(weftInvalidArgument, "prepared is NULL");
    const uint64_t magic = magic_of(prepared);
    if (magic == weftPrepared::destroyed) return fail(weftInvalidArgument, "the prepared calls were destroyed before");
    if (magic != weftPrepared::living)
        return fail(weftInvalidArgument, "{} was not made by weftGroupPrepare", static_cast<const void*>(prepared));
    if (prepared->process != process_token())
        return fail(weftInvalidUsage, "the calls were prepared before fork(); a child process prepares its own");
    return ok();
}

void end_prepared(weftPrepared* prepared) {
    prepared->magic.store(weftPrepared::destroyed, std::memory_order_release);
    std::vector<QueuedCall>().swap(prepared->calls);
}

Status start(const weftPrepared& prepared) {
    if (Group& group = Group::current(); group.open()) {
        for (const QueuedCall& queued : prepared.calls) WEFT_TRY(group.check(queued));
        for (const QueuedCall& queued : prepared.calls) WEFT_TRY(group.add(queued));
        return ok();
    }
    if (prepared.calls.size() != 1) return submit(prepared.calls);
    // As a call by itself, without a copy.
    const QueuedCall& only = prepared.calls[0];
    WEFT_TRY(check_handle(only.handle));
    Entered entered(only.handle);
    if (!entered.entered()) return entered.refused();
    Status done = submit(entered, only.handle, {&only.call, 1});
    if (!done && done.code() != weftInProgress) only.handle->keep_error(done);
    return done;
}

}  // namespace weft
