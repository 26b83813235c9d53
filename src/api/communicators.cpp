// communicators.cpp: creates, queries and ends communicators; groups.
#include <sched.h>

#include <atomic>

#include "src/api/guard.hpp"
#include "src/base/log.hpp"
#include "src/calls/group.hpp"
#include "src/comm/facts.hpp"
#include "src/comm/returned_errors.hpp"
#include "src/comm/splitting.hpp"
#include "src/launchers/launcher.hpp"
#include "weft/weft.h"

using namespace weft::internal;

namespace {

Status ended() { return fail(error::argument_communicator, "the communicator was destroyed or aborted before"); }

Status join_or_queue(std::vector<Joining> joinings) {
    Group* const group = Group::current_open();
    if (!group) return dispatch(std::move(joinings));
    for (Joining& joining : joinings) group->add(std::move(joining));
    return ok();
}

Status init_rank(weftComm_t* comm, int nranks, const weftUniqueId& bytes, int rank, const weftConfig_t* config) {
    if (comm) *comm = nullptr;
    auto id = UniqueId::read(bytes);
    if (!id) return id.take_status();
    auto joining = prepare_joining(comm, nranks, *id, rank, config);
    if (!joining) return joining.take_status();
    std::vector<Joining> one;
    one.push_back(std::move(*joining));
    return join_or_queue(std::move(one));
}

// For functions that make a communicator without a parent.
template <class Body>
weftResult_t guarded_making(const char* function, Body&& body) noexcept {
    return guarded([&] { return numbered(function, nullptr, body); });
}

}  // namespace

extern "C" {

weftResult_t weftGetUniqueId(weftUniqueId* id) {
    return guarded([&]() -> Status {
        if (!id) return fail(error::argument_null, "weftGetUniqueId: id is NULL");
        auto made = UniqueId::make();
        if (!made) return made.take_status();
        *id = made->bytes();
        return ok();
    });
}

weftResult_t weftCommInitRank(weftComm_t* comm, int nranks, weftUniqueId id, int rank) {
    return guarded_making(__func__, [&] { return init_rank(comm, nranks, id, rank, nullptr); });
}

weftResult_t weftCommInitRankConfig(weftComm_t* comm, int nranks, weftUniqueId id, int rank,
                                    const weftConfig_t* config) {
    return guarded_making(__func__, [&] { return init_rank(comm, nranks, id, rank, config); });
}

weftResult_t weftCommInitAll(weftComm_t* comms, int ndev, const int* devlist) {
    return guarded_making(__func__, [&]() -> Status {
        if (!comms)
            return fail(error::argument_null, "weftCommInitAll: comms is NULL: pass an array of ndev communicators");
        if (ndev < 1 || ndev > max_ranks)
            return fail(error::argument_rank, "weftCommInitAll: ndev is {}; it must be 1 to {}", ndev, max_ranks);
        std::fill_n(comms, ndev, nullptr);
        for (int rank = 0; devlist && rank < ndev; ++rank)
            if (devlist[rank] < 0)
                return fail(error::argument_device, "weftCommInitAll: devlist[{}] is {}; device numbers start at 0",
                            rank, devlist[rank]);
        // Several hosts meet at a root.
        auto id = ranks_share_memory() ? UniqueId::make_local() : UniqueId::make();
        if (!id) return id.take_status();
        std::vector<Joining> joinings;
        for (int rank = 0; rank < ndev; ++rank) {
            auto joining =
                prepare_joining(&comms[rank], ndev, *id, rank, nullptr, devlist ? devlist[rank] : GpuEngine::no_device);
            if (!joining) return joining.take_status();
            joinings.push_back(std::move(*joining));
        }
        return join_or_queue(std::move(joinings));
    });
}

weftResult_t weftCommInitFromEnvironment(weftComm_t* comm, const weftConfig_t* config) {
    return guarded_making(__func__, [&]() -> Status {
        if (comm) *comm = nullptr;
        static std::atomic<uint64_t> made{0};  // communicators of the job so far, equal on all ranks
        auto job = read_job();
        if (!job) return job.take_status();
        WEFT_LOG_RANK(job->rank, info, init, "rank {} of {}, started by {}", job->rank, job->ranks, job->launcher);
        auto joining = prepare_joining(comm, job->ranks, job->id.nth(made.fetch_add(1)), job->rank, config);
        if (!joining) return joining.take_status();
        std::vector<Joining> one;
        one.push_back(std::move(*joining));
        return join_or_queue(std::move(one));
    });
}

weftResult_t weftCommDestroy(weftComm_t comm) {
    if (!comm) return weftSuccess;
    return guarded([&]() -> Status {
        if (!is_being_made(comm)) WEFT_TRY(check_handle(comm));
        if (Group::current().holds(comm))
            return fail(
                error::group_holds_calls,
                "weftCommDestroy inside a group that holds calls on this communicator: call weftGroupEnd first");
        Entered entered(comm);
        if (!entered.alone()) return entered.refused();
        entered.settle();
        if (!is_being_made(comm)) WEFT_TRY(check_handle(comm));  // another thread may have aborted it
        comm->retire();
        return ok();
    });
}

weftResult_t weftCommSplit(weftComm_t comm, int color, int key, weftComm_t* newcomm, const weftConfig_t* config) {
    return guarded_call(__func__, comm, [&]() -> Status {
        auto splitting = Splitting::split(comm, color, key, newcomm, config);
        return splitting ? Group::current().add_or_run(comm, std::move(*splitting)) : splitting.take_status();
    });
}

weftResult_t weftCommShrink(weftComm_t comm, int* excludeRanksList, int excludeRanksCount, weftComm_t* newcomm,
                            const weftConfig_t* config, int shrinkFlags) {
    return guarded_call(__func__, comm, [&]() -> Status {
        if (newcomm) *newcomm = nullptr;
        if (excludeRanksCount < 1)
            return fail(error::argument_value,
                        "weftCommShrink: excludeRanksCount is {}; it must be at least 1 (use "
                        "weftCommSplit to duplicate a communicator)",
                        excludeRanksCount);
        if (!excludeRanksList)
            return fail(error::argument_null,
                        "weftCommShrink: excludeRanksList is NULL although excludeRanksCount is {}", excludeRanksCount);
        if (shrinkFlags != WEFT_SHRINK_DEFAULT && shrinkFlags != WEFT_SHRINK_ABORT)
            return fail(error::argument_value,
                        "weftCommShrink: shrinkFlags is {}; it must be WEFT_SHRINK_DEFAULT or "
                        "WEFT_SHRINK_ABORT",
                        shrinkFlags);
        auto splitting = Splitting::shrink(comm, {excludeRanksList, excludeRanksList + excludeRanksCount}, newcomm,
                                           config, shrinkFlags == WEFT_SHRINK_ABORT);
        return splitting ? Group::current().add_or_run(comm, std::move(*splitting)) : splitting.take_status();
    });
}

weftResult_t weftCommFinalize(weftComm_t comm) {
    return guarded_comm(comm, [&]() -> Status {
        if (Group::current().holds(comm))
            return fail(
                error::group_holds_calls,
                "weftCommFinalize inside a group that holds calls on this communicator: call weftGroupEnd first");
        Entered entered(comm);
        if (!entered.entered()) return entered.refused();
        if (comm->own_stream)
            return dispatch(comm, [communicator = comm->communicator.get()] { return communicator->finalize(); });
        entered.settle();
        return comm->communicator->finalize();
    });
}

weftResult_t weftCommAbort(weftComm_t comm) {
    return guarded([&]() -> Status {
        const bool being_made = is_being_made(comm);
        if (!being_made) WEFT_TRY(check_handle(comm));
        // The abort would wait for this thread.
        if (comm->executes_here())
            return fail(error::usage_in_function,
                        "weftCommAbort in the function of a user's reduction (weftRedOpCreate), on a communicator "
                        "whose calls this thread executes: return from the function first");
        if (being_made) {
            if (Group::current().holds(comm))
                return fail(error::group_holds_calls,
                            "weftCommAbort inside the group that makes this communicator: call weftGroupEnd first");
            comm->cancelled.store(true, std::memory_order_release);
            comm->turns.settle();
        }
        // Of several concurrent aborts only the first continues; for the others the handle is gone.
        uint64_t state = weftComm::living;
        if (!comm->magic.compare_exchange_strong(state, weftComm::destroyed) &&
            !(state == weftComm::unmade && comm->magic.compare_exchange_strong(state, weftComm::destroyed)))
            return check_handle(comm);
        if (const auto communicator = comm->share()) communicator->abort();
        // Calls that wait in streams never begin.
        comm->turns.close();
        // A thread inside sees the abort at its next wait.
        uintptr_t alone = 0;
        while (!comm->inside.compare_exchange_weak(alone, weftComm::this_thread(), std::memory_order_acquire)) {
            alone = 0;
            sched_yield();
        }
        comm->retire();
        comm->inside.store(0, std::memory_order_release);
        return ok();
    });
}

weftResult_t weftCommGetAsyncError(weftComm_t comm, weftResult_t* asyncError) {
    return guarded([&]() -> Status {
        if (!asyncError) return fail(error::argument_null, "weftCommGetAsyncError: asyncError is NULL");
        if (is_being_made(comm)) {
            std::unique_lock lock(comm->mutex);
            const bool unmade = comm->magic == weftComm::unmade;
            *asyncError = unmade ? comm->unmade_by : weftInProgress;
            const Status failure = unmade ? Status(comm->error) : ok();
            lock.unlock();
            record_returned_error(failure);
            return ok();
        }
        WEFT_TRY(check_handle(comm));
        const auto communicator = comm->share();
        if (!communicator) return ended();
        const auto stream = comm->share_own_stream();
        Status state = stream ? stream->test(HostStream::everything) : ok();
        // The buffers of an active call stay in use, also after a failure.
        if (state) state = communicator->state();
        if (!state && state.code() != weftInProgress) {
            record_returned_error(state);
            comm->keep_error(state);
        }
        *asyncError = state.code();
        return ok();
    });
}

weftResult_t weftCommCount(const weftComm_t comm, int* count) {
    return guarded_comm(comm, [&]() -> Status {
        if (!count) return fail(error::argument_null, "weftCommCount: count is NULL");
        const auto communicator = comm->share();
        if (!communicator) return ended();
        *count = communicator->ranks();
        return ok();
    });
}

weftResult_t weftCommUserRank(const weftComm_t comm, int* rank) {
    return guarded_comm(comm, [&]() -> Status {
        if (!rank) return fail(error::argument_null, "weftCommUserRank: rank is NULL");
        const auto communicator = comm->share();
        if (!communicator) return ended();
        *rank = communicator->rank();
        return ok();
    });
}

weftResult_t weftCommCuDevice(const weftComm_t comm, int* device) {
    return guarded_comm(comm, [&]() -> Status {
        if (!device) return fail(error::argument_null, "weftCommCuDevice: device is NULL");
        const auto communicator = comm->share();
        if (!communicator) return ended();
        auto own = cuda_device(*communicator);
        if (!own) return own.take_status();
        *device = *own;
        return ok();
    });
}

weftResult_t weftGroupStart(void) {
    return guarded([] { return Group::current().start(), ok(); });
}
weftResult_t weftGroupEnd(void) {
    return guarded([] { return Group::current().end(); });
}
weftResult_t weftGroupGetCallCount(uint64_t* calls) {
    return guarded([&]() -> Status {
        if (!calls) return fail(error::argument_null, "weftGroupGetCallCount: calls is NULL");
        const CallStatuses* ended = Group::current().ended();
        *calls = ended ? ended->size() : 0;
        return ok();
    });
}
weftResult_t weftGroupGetCallError(uint64_t call, weftResult_t* result, const char** message) {
    return guarded([&]() -> Status {
        if (!result) return fail(error::argument_null, "weftGroupGetCallError: result is NULL");
        const CallStatuses* ended = Group::current().ended();
        if (!ended || call >= ended->size())
            return fail(error::argument_value,
                        "weftGroupGetCallError: call is {}; the last group of this thread had {} "
                        "calls, which are counted from 0",
                        call, ended ? ended->size() : 0);
        const char* sentence = nullptr;
        *result = ended->of(call, sentence);
        if (message) *message = sentence;
        return ok();
    });
}
}
