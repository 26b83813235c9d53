// communicators.cpp: making, naming, asking and ending communicators; groups.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "src/api/guard.hpp"
#include "src/base/cpu.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/bootstrap/launcher.hpp"
#include "src/comm/group.hpp"
#include "src/registry.hpp"
#include "weft/weft.h"

using namespace weft;

namespace {

Status ended() { return fail(weftInvalidArgument, "the communicator was destroyed or aborted before"); }

Status check_config(const weftConfig_t& config) {
    if (config.magic != WEFT_CONFIG_MAGIC || config.size < offsetof(weftConfig_t, timeoutMs))
        return fail(weftInvalidArgument, "the config was not initialised: begin with weftConfig_t config = WEFT_CONFIG_INITIALIZER");
    return ok();
}

// Milliseconds that can be counted in microseconds: what is longer than that is 292,000 years anyway.
int64_t countable_ms(int64_t ms) { return std::min(ms, INT64_MAX / 1000); }

// The caller's settings over the environment's, in a struct of this library's size whatever the caller's was.
Result<Joining> prepare(weftComm_t* comm, int nranks, const UniqueId& id, int rank, const weftConfig_t* given) {
    if (!comm) return fail(weftInvalidArgument, "comm is NULL: pass the address of a weftComm_t");
    *comm = nullptr;  // whatever comes: the caller may pass it to weftCommDestroy
    if (nranks < 1 || nranks > max_ranks_per_host) return fail(weftInvalidArgument, "nranks is {}; a communicator has 1 to {} ranks", nranks, max_ranks_per_host);
    if (rank < 0 || rank >= nranks) return fail(weftInvalidArgument, "rank is {}; with nranks {} it is 0 to {}", rank, nranks, nranks - 1);
    if (!options_status()) return Status(weftInvalidArgument, options_status().sentence());
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    if (given) {
        WEFT_TRY(check_config(*given));
        memcpy(&config, given, std::min(given->size, sizeof config));
    }
    if (config.blocking == 0) return fail(weftInvalidArgument, "config.blocking is 0; Weft {}.{} has blocking communicators only", WEFT_MAJOR, WEFT_MINOR);
    if (config.blocking != 1 && config.blocking != WEFT_CONFIG_UNDEF_INT) return fail(weftInvalidArgument, "config.blocking is {}; it is 1 or undefined", config.blocking);

    const Options& environment = options();
    Joining joining;
    joining.rank = rank;
    joining.result = comm;
    CommunicatorOptions& settings = joining.options;
    settings.name = config.commName ? config.commName : "";
    settings.timeout_ms = countable_ms(config.timeoutMs >= 0 ? config.timeoutMs : environment.timeout_ms);
    settings.warn_ms = countable_ms(environment.warn_ms);
    settings.sleep_us = environment.sleep_us;
    settings.streaming_bytes = environment.streaming_bytes;
    settings.movers = environment.isa.empty() ? &movers() : find_movers(environment.isa);
    if (!settings.movers) {
        std::string names;
        for (const Movers* set : all_movers()) names += fmt::format("{}{}", names.empty() ? "" : ", ", set->isa);
        return fail(weftInvalidArgument, "WEFT_ISA is `{}`; this machine has {}", environment.isa, names);
    }

    MeetingOptions meeting;
    meeting.timeout_ms = countable_ms(config.initTimeoutMs >= 0 ? config.initTimeoutMs : environment.init_timeout_ms);
    const std::string algo = config.algo ? config.algo : environment.algo;
    WEFT_TRY(check_algo(algo, registry::algorithms()));
    if (algo.size() >= sizeof meeting.proposal.algo) return fail(weftInvalidArgument, "the list of algorithms has {} characters; at most {} are read", algo.size(), sizeof meeting.proposal.algo - 1);
    memcpy(meeting.proposal.algo, algo.c_str(), algo.size() + 1);
    meeting.proposal.tile_bytes = environment.tile_bytes;
    meeting.proposal.channels = environment.channels;
    meeting.proposal.direct = environment.direct;
    joining.meeting = std::make_unique<Meeting>(id, nranks, rank, meeting);
    return joining;
}

Status join_or_queue(std::vector<Joining> joinings) {
    if (!Group::current().open()) return join(std::move(joinings));
    for (Joining& joining : joinings) Group::current().add(std::move(joining));
    return ok();
}

Status init_rank(weftComm_t* comm, int nranks, const weftUniqueId& bytes, int rank, const weftConfig_t* config) {
    if (comm) *comm = nullptr;
    auto id = UniqueId::read(bytes);
    if (!id) return id.take_status();
    auto joining = prepare(comm, nranks, *id, rank, config);
    if (!joining) return joining.take_status();
    std::vector<Joining> one;
    one.push_back(std::move(*joining));
    return join_or_queue(std::move(one));
}

}  // namespace

extern "C" {

weftResult_t weftGetUniqueId(weftUniqueId* id) {
    return guarded(nullptr, [&]() -> Status {
        if (!id) return fail(weftInvalidArgument, "weftGetUniqueId: id is NULL");
        auto made = UniqueId::make();
        if (!made) return made.take_status();
        *id = made->bytes();
        return ok();
    });
}

weftResult_t weftCommInitRank(weftComm_t* comm, int nranks, weftUniqueId id, int rank) {
    return guarded(nullptr, [&] { return init_rank(comm, nranks, id, rank, nullptr); });
}

weftResult_t weftCommInitRankConfig(weftComm_t* comm, int nranks, weftUniqueId id, int rank, const weftConfig_t* config) {
    return guarded(nullptr, [&] { return init_rank(comm, nranks, id, rank, config); });
}

weftResult_t weftCommInitAll(weftComm_t* comms, int ndev, const int* devlist) {
    return guarded(nullptr, [&]() -> Status {
        if (!comms) return fail(weftInvalidArgument, "weftCommInitAll: comms is NULL: pass an array of ndev communicators");
        if (devlist) return fail(weftInvalidArgument, "weftCommInitAll: devlist must be NULL; Weft {}.{} has host ranks only", WEFT_MAJOR, WEFT_MINOR);
        if (ndev < 1 || ndev > max_ranks_per_host)
            return fail(weftInvalidArgument, "weftCommInitAll: ndev is {}; it is 1 to {}", ndev, max_ranks_per_host);
        std::fill_n(comms, ndev, nullptr);
        auto id = UniqueId::make();
        if (!id) return id.take_status();
        std::vector<Joining> joinings;
        for (int rank = 0; rank < ndev; ++rank) {
            auto joining = prepare(&comms[rank], ndev, *id, rank, nullptr);
            if (!joining) return joining.take_status();
            joinings.push_back(std::move(*joining));
        }
        return join_or_queue(std::move(joinings));
    });
}

weftResult_t weftCommInitFromEnvironment(weftComm_t* comm, const weftConfig_t* config) {
    return guarded(nullptr, [&]() -> Status {
        if (comm) *comm = nullptr;
        static std::atomic<uint64_t> made{0};  // communicators of the job so far, counted alike on all ranks
        auto job = read_job();
        if (!job) return job.take_status();
        WEFT_LOG_RANK(job->rank, info, init, "rank {} of {}, started by {}", job->rank, job->ranks, job->launcher);
        auto joining = prepare(comm, job->ranks, job->id.nth(made.fetch_add(1)), job->rank, config);
        if (!joining) return joining.take_status();
        std::vector<Joining> one;
        one.push_back(std::move(*joining));
        return join_or_queue(std::move(one));
    });
}

weftResult_t weftCommDestroy(weftComm_t comm) {
    if (!comm) return weftSuccess;
    return guarded(nullptr, [&]() -> Status {
        WEFT_TRY(check_handle(comm));
        if (Group::current().holds(comm)) return fail(weftInvalidUsage, "weftCommDestroy inside a group that holds calls on this communicator: call weftGroupEnd first");
        Inside inside(comm);
        if (!inside.entered()) return Inside::refused();
        comm->retire();
        return ok();
    });
}

weftResult_t weftCommAbort(weftComm_t comm) {
    return guarded(nullptr, [&]() -> Status {
        WEFT_TRY(check_handle(comm));
        // Of several aborts at once only the first goes on: for the others the handle is gone.
        uint64_t living = weftComm::living;
        if (!comm->magic.compare_exchange_strong(living, weftComm::destroyed)) return check_handle(comm);
        const auto communicator = comm->share();
        if (!communicator) return ended();
        communicator->abort();
        // Whoever is inside sees the abort at its next wait.
        uint32_t alone = 0;
        while (!comm->inside.compare_exchange_weak(alone, 1, std::memory_order_acquire)) {
            alone = 0;
            sched_yield();
        }
        comm->retire();
        comm->inside.store(0, std::memory_order_release);
        return ok();
    });
}

weftResult_t weftCommGetAsyncError(weftComm_t comm, weftResult_t* asyncError) {
    return guarded_comm(comm, [&]() -> Status {
        if (!asyncError) return fail(weftInvalidArgument, "weftCommGetAsyncError: asyncError is NULL");
        const auto communicator = comm->share();
        if (!communicator) return ended();
        *asyncError = communicator->state().code();
        return ok();
    });
}

weftResult_t weftCommCount(const weftComm_t comm, int* count) {
    return guarded_comm(comm, [&]() -> Status {
        if (!count) return fail(weftInvalidArgument, "weftCommCount: count is NULL");
        const auto communicator = comm->share();
        if (!communicator) return ended();
        *count = communicator->ranks();
        return ok();
    });
}

weftResult_t weftCommUserRank(const weftComm_t comm, int* rank) {
    return guarded_comm(comm, [&]() -> Status {
        if (!rank) return fail(weftInvalidArgument, "weftCommUserRank: rank is NULL");
        const auto communicator = comm->share();
        if (!communicator) return ended();
        *rank = communicator->rank();
        return ok();
    });
}

weftResult_t weftGroupStart(void) {
    return guarded(nullptr, [] { return Group::current().start(), ok(); });
}
weftResult_t weftGroupEnd(void) {
    return guarded(nullptr, [] { return Group::current().end(); });
}
}
