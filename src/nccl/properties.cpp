// properties.cpp: facts about communicators, and their teams. Without a device API each rank is a team of its own.
#include "src/nccl/configs.hpp"
#include "src/nccl/last_error.hpp"
#include "src/nccl/translation.hpp"

using namespace weft::internal::nccl;

namespace {

ncclTeam_t whole_team(ncclComm_t comm) {
    ncclTeam_t team{0, 0, 1};
    if (finish(weftCommCount(weft_comm(comm), &team.nRanks)) != ncclSuccess ||
        finish(weftCommUserRank(weft_comm(comm), &team.rank)) != ncclSuccess)
        return {0, 0, 1};
    return team;
}
constexpr ncclTeam_t own_team{1, 0, 1};

}  // namespace

extern "C" {

ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
    if (!value) return refuse(ncclInvalidArgument, "ncclCommMemStats", "value is NULL");
    uint64_t device_bytes = 0;
    const weftResult_t result = weftCommMemStats(weft_comm(comm), weftMemDevice, &device_bytes);
    if (result != weftSuccess) return finish(result);
    switch (stat) {
        case ncclStatGpuMemSuspend:
        case ncclStatGpuMemSuspended: *value = 0; return ncclSuccess;
        case ncclStatGpuMemPersist:
        case ncclStatGpuMemTotal: *value = device_bytes; return ncclSuccess;
    }
    return refuse(ncclInvalidArgument, "ncclCommMemStats", "stat must be 0 to 3");
}

ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* props) {
    constexpr const char* function = "ncclCommQueryProperties";
    if (!props) return refuse(ncclInvalidArgument, function, "props is NULL");
    if (props->magic != NCCL_API_MAGIC)
        return refuse(ncclInvalidArgument, function, "props was not initialised by NCCL_COMM_PROPERTIES_INITIALIZER");
    int rank = 0, ranks = 0;
    if (const weftResult_t result = weftCommUserRank(weft_comm(comm), &rank); result != weftSuccess)
        return finish(result);
    if (const weftResult_t result = weftCommCount(weft_comm(comm), &ranks); result != weftSuccess)
        return finish(result);
    props->rank = rank;
    props->nRanks = ranks;
    int device = -1;
    const bool has_device = weftCommCuDevice(weft_comm(comm), &device) == weftSuccess;
    props->cudaDev = has_device ? device : -1;
    props->nvmlDev = -1;
    props->deviceApiSupport = props->multimemSupport = false;
    props->ginType = props->railedGinType = 0;
    props->nLsaTeams = ranks;
    props->hostRmaSupport = true;
    if (props->version < WEFT_NCCL_2_31) return ncclSuccess;
    props->commHash = 0;
    props->ginMinStride = props->ginConnectionType = 0;
    for (bool& supported : props->ginSupport) supported = false;
    props->devCommRuntimeVersionSize = 0;
    if (props->version < WEFT_NCCL_2_32) return ncclSuccess;
    for (bool& supported : props->cftSupport) supported = false;
    return ncclSuccess;
}

ncclTeam_t pncclTeamWorld(ncclComm_t comm) { return whole_team(comm); }
ncclTeam_t pncclTeamRail(ncclComm_t comm) { return whole_team(comm); }
ncclTeam_t pncclTeamLsa(ncclComm_t) { return own_team; }
ncclTeam_t pncclTeamCft(ncclComm_t, int) { return own_team; }
ncclTeam_t pncclTeamCftMultimem(ncclComm_t) { return own_team; }

int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
    return whole_team(comm).rank + (rank - team.rank) * team.stride;
}
int pncclTeamRankToLsa(ncclComm_t, ncclTeam_t team, int rank) {
    return own_team.rank + (rank - team.rank) * team.stride;
}

// No kernel can use a slot.
int pncclLLA2ACalcSlots(int, int) { return 0; }
}
