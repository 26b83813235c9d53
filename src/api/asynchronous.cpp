// asynchronous.cpp: host streams, prepared calls, and settings of later calls.
#include <algorithm>
#include <cstring>

#include "src/api/guard.hpp"
#include "src/calls/group.hpp"
#include "src/calls/prepared.hpp"
#include "src/comm/settings.hpp"
#include "weft/weft.h"

using namespace weft::internal;

namespace {

Status create(const char* function, weftHostStream_t* stream, int priority) {
    if (!stream)
        return fail(error::argument_null, "{}: stream is NULL: pass the address of a weftHostStream_t", function);
    *stream = nullptr;
    if (priority < 0 || priority > WEFT_STREAM_LOWEST_PRIORITY)
        return fail(error::argument_value, "{}: priority is {}; it must be 0 (the highest) to {}", function, priority,
                    WEFT_STREAM_LOWEST_PRIORITY);
    auto made = HostStream::make(priority);
    if (!made) return made.take_status();
    *stream = make_stream_handle(std::move(*made));
    return ok();
}

// A function that a stream runs must not wait for that stream.
Result<std::shared_ptr<HostStream>> stream_to_ask(weftHostStream_t stream) {
    if (!stream)
        return fail(error::argument_null, "the stream is NULL; calls without a stream are complete when they return");
    auto found = host_stream(stream);
    if (found && (*found)->is_current())
        return fail(error::usage_in_function,
                    "this thread belongs to the stream; a call that runs in a stream cannot wait "
                    "for that stream");
    return found;
}

// The size in the first version; later versions only append fields.
constexpr size_t first_size = offsetof(weftCallConfig_t, algo) + sizeof(weftCallConfig_t::algo);

// A later field must not lie where an older caller has padding, whose bytes nobody sets.
static_assert(sizeof(weftCallConfig_t) ==
              offsetof(weftCallConfig_t, blockPolicy) + sizeof(weftCallConfig_t::blockPolicy));

Status check_config(const weftCallConfig_t& config) {
    if (config.magic != WEFT_CALL_CONFIG_MAGIC || config.size < first_size)
        return fail(
            error::argument_config,
            "the config was not initialised: begin with weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER");
    if (config.channels != WEFT_CONFIG_UNDEF_INT && (config.channels < 0 || config.channels > 64))
        return fail(error::argument_config, "config.channels is {}; it must be 0 (Weft chooses) to 64, or undefined",
                    config.channels);
    return ok();
}

}  // namespace

extern "C" {

weftResult_t weftStreamCreate(weftHostStream_t* stream) {
    return guarded([&] { return create("weftStreamCreate", stream, 0); });
}

weftResult_t weftStreamCreateWithPriority(weftHostStream_t* stream, int priority) {
    return guarded([&] { return create("weftStreamCreateWithPriority", stream, priority); });
}

weftResult_t weftStreamDestroy(weftHostStream_t stream) {
    if (!stream) return weftSuccess;
    return guarded([&]() -> Status {
        auto found = stream_to_ask(stream);
        if (!found) return found.take_status();
        Status last = (*found)->wait(HostStream::everything, -1);
        std::shared_ptr<HostStream> ending;  // its thread ends outside the lock
        std::lock_guard lock(handle_of(stream)->mutex);
        ending.swap(handle_of(stream)->stream);
        return last;
    });
}

weftResult_t weftStreamMark(weftHostStream_t stream, uint64_t* mark) {
    return guarded([&]() -> Status {
        if (!mark) return fail(error::argument_null, "weftStreamMark: mark is NULL");
        auto found = stream_to_ask(stream);
        if (!found) return found.take_status();
        *mark = (*found)->enqueued();
        return ok();
    });
}

weftResult_t weftStreamTest(weftHostStream_t stream, uint64_t mark) {
    return guarded([&]() -> Status {
        auto found = stream_to_ask(stream);
        if (!found) return found.take_status();
        return (*found)->test(mark);
    });
}

weftResult_t weftStreamWait(weftHostStream_t stream, uint64_t mark, int64_t timeoutMs) {
    return guarded([&]() -> Status {
        auto found = stream_to_ask(stream);
        if (!found) return found.take_status();
        return (*found)->wait(mark, timeoutMs);
    });
}

weftResult_t weftCommSetCallConfig(weftComm_t comm, const weftCallConfig_t* config) {
    return guarded_comm(comm, [&]() -> Status {
        weftCallConfig_t settings = WEFT_CALL_CONFIG_INITIALIZER;
        if (config) {
            WEFT_TRY(check_config(*config));
            memcpy(&settings, config, std::min(config->size, sizeof settings));
            WEFT_TRY(check_blocks(settings.minBlocks, settings.maxBlocks));
            WEFT_TRY(check_block_policy(settings.blockPolicy));
        }
        Entered entered(comm);
        if (!entered.entered()) return entered.refused();
        LaterSettings& later = comm->communicator->inputs().settings;
        if (!later.knows(settings)) entered.settle();
        return later.set(settings);
    });
}

weftResult_t weftGroupPrepare(weftPrepared_t* prepared) {
    return guarded([&]() -> Status {
        if (prepared) *prepared = nullptr;
        auto calls = Group::current().end_prepared();
        if (!calls) return calls.take_status();
        if (!prepared)
            return fail(error::argument_null,
                        "weftGroupPrepare: prepared is NULL: pass the address of a weftPrepared_t");
        *prepared = make_prepared(std::move(*calls));
        return ok();
    });
}

weftResult_t weftPreparedStart(weftPrepared_t prepared) {
    return guarded([&]() -> Status {
        return numbered("weftPreparedStart", nullptr, [&]() -> Status {
            WEFT_TRY(check_prepared(prepared));
            return start(*prepared);
        });
    });
}

weftResult_t weftPreparedDestroy(weftPrepared_t prepared) {
    if (!prepared) return weftSuccess;
    return guarded([&]() -> Status {
        WEFT_TRY(check_prepared(prepared));
        end_prepared(prepared);
        return ok();
    });
}
}
