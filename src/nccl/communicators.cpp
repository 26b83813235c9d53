// communicators.cpp: creates, queries and ends communicators; groups.
#include <cstring>
#include <numeric>
#include <vector>

#include "src/nccl/configs.hpp"
#include "src/nccl/last_error.hpp"
#include "src/nccl/process.hpp"
#include "src/nccl/translation.hpp"

using namespace weft::internal::nccl;

namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(weftUniqueId));

weftUniqueId weft_id(const ncclUniqueId& id) {
    weftUniqueId same;
    std::memcpy(&same, &id, sizeof same);
    return same;
}

ncclResult_t init_rank(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId& id, int rank,
                       const ncclConfig_t* given) {
    return guarded(function, [&] {
        if (!given) return finish(weftCommInitRank(weft_comm(comm), nranks, weft_id(id), rank));
        weftConfig_t config;
        if (const ncclResult_t read = read_config(function, *given, config); read != ncclSuccess) return read;
        return finish(weftCommInitRankConfig(weft_comm(comm), nranks, weft_id(id), rank, &config));
    });
}

// Calls `make` with the config for a child of a communicator: NULL inherits the parent's settings.
template <class Make>
ncclResult_t make_child(const char* function, const ncclConfig_t* given, Make&& make) {
    return guarded(function, [&] {
        if (!given) return finish(make(nullptr));
        weftConfig_t config;
        if (const ncclResult_t read = read_config(function, *given, config); read != ncclSuccess) return read;
        return finish(make(&config));
    });
}

}  // namespace

extern "C" {

ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) {
    weftUniqueId id;
    const weftResult_t result = weftGetUniqueId(uniqueId ? &id : nullptr);
    if (result == weftSuccess) std::memcpy(uniqueId, &id, sizeof id);
    return finish(result);
}

ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
    return init_rank("ncclCommInitRank", comm, nranks, commId, rank, nullptr);
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t* config) {
    return init_rank("ncclCommInitRankConfig", comm, nranks, commId, rank, config);
}

// NCCL's ranks spread over several ids; Weft's meet at the first.
ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                       ncclConfig_t* config) {
    constexpr const char* function = "ncclCommInitRankScalable";
    if (nId < 1 || !commIds) return refuse(ncclInvalidArgument, function, "commIds must hold at least one id");
    return init_rank(function, newcomm, nranks, commIds[0], myrank, config);
}

ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
    return guarded("ncclCommInitAll", [&] {
        std::vector<int> first_devices;
        if (!devlist && ndev > 0) {
            if (has_devices()) {
                first_devices.resize(size_t(ndev));
                std::iota(first_devices.begin(), first_devices.end(), 0);
                devlist = first_devices.data();
            } else {
                log_info("ncclCommInitAll: there is no GPU, so the " + std::to_string(ndev) + " ranks use host memory");
            }
        }
        return finish(weftCommInitAll(weft_comm(comm), ndev, devlist));
    });
}

ncclResult_t pncclCommFinalize(ncclComm_t comm) { return finish(weftCommFinalize(weft_comm(comm))); }
ncclResult_t pncclCommDestroy(ncclComm_t comm) { return finish(weftCommDestroy(weft_comm(comm))); }
// NULL is accepted, as NCCL does.
ncclResult_t pncclCommAbort(ncclComm_t comm) { return comm ? finish(weftCommAbort(weft_comm(comm))) : ncclSuccess; }

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
    return make_child("ncclCommSplit", config, [&](const weftConfig_t* settings) {
        return weftCommSplit(weft_comm(comm), color, key, weft_comm(newcomm), settings);
    });
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                             ncclConfig_t* config, int shrinkFlags) {
    return make_child("ncclCommShrink", config, [&](const weftConfig_t* settings) {
        return weftCommShrink(weft_comm(comm), excludeRanksList, excludeRanksCount, weft_comm(newcomm), settings,
                              weft_shrink_flags(shrinkFlags));
    });
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
    weftResult_t state = weftSuccess;
    const weftResult_t result = weftCommGetAsyncError(weft_comm(comm), asyncError ? &state : nullptr);
    // An error that a call reports here is also the newest for ncclGetLastError.
    if (result == weftSuccess) *asyncError = finish(state);
    return finish(result);
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) { return finish(weftCommCount(weft_comm(comm), count)); }
ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
    return finish(weftCommUserRank(weft_comm(comm), rank));
}
ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
    return finish(weftCommCuDevice(weft_comm(comm), device));
}

ncclResult_t pncclGroupStart(void) {
    const weftResult_t result = weftGroupStart();
    if (result == weftSuccess) begin_group();
    return finish(result);
}
ncclResult_t pncclGroupEnd(void) { return end_group(finish(weftGroupEnd())); }

// The group ends without its calls, as in NCCL, but Weft has no estimate for it.
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
    constexpr const char* function = "ncclGroupSimulateEnd";
    if (simInfo && simInfo->magic != NCCL_SIM_INFO_MAGIC)
        return refuse(ncclInvalidArgument, function, "simInfo was not initialised by NCCL_SIM_INFO_INITIALIZER");
    weftPrepared_t calls = nullptr;
    const weftResult_t ended = weftGroupPrepare(&calls);
    (void)end_group(ncclSuccess);
    if (ended == weftSuccess && weftPreparedDestroy(calls) != weftSuccess)
        return refuse(ncclInternalError, function, "the calls of the group could not be freed");
    return refuse_unsupported(function, "the group has ended without its calls; `weft schedule` predicts times");
}
}
