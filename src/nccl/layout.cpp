// layout.cpp: sizes and offsets of the structs, as programs compiled against nccl.h 2.28.9, 2.30 and 2.32 have them.
#include "src/nccl/abi.h"

static_assert(sizeof(ncclUniqueId) == 128);
static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclDataType_t) == 4 && sizeof(ncclRedOp_t) == 4);

static_assert(offsetof(ncclConfig_t, magic) == 8 && offsetof(ncclConfig_t, version) == 12);
static_assert(offsetof(ncclConfig_t, blocking) == 16 && offsetof(ncclConfig_t, netName) == 32);
static_assert(offsetof(ncclConfig_t, splitShare) == 40 && offsetof(ncclConfig_t, commName) == 48);
static_assert(offsetof(ncclConfig_t, collnetEnable) == 56 && offsetof(ncclConfig_t, nvlinkCentricSched) == 76);
static_assert(offsetof(ncclConfig_t, graphUsageMode) == 80 && offsetof(ncclConfig_t, graphStreamOrdering) == 92);
static_assert(offsetof(ncclConfig_t, launchOrderImplicit) == 96 && offsetof(ncclConfig_t, numRmaSig) == 100);
static_assert(offsetof(ncclConfig_t, rmaEagerInit) == 104 && offsetof(ncclConfig_t, hostCftMode) == 108);
static_assert(offsetof(ncclConfig_t, nvlsHostMode) == 112 && sizeof(ncclConfig_t) == 120);

static_assert(sizeof(ncclConfigExt_t) == 24 && offsetof(ncclConfigExt_t, val) == 16);
static_assert(offsetof(ncclCollConfig_t, ext) == 16 && offsetof(ncclCollConfig_t, minCTAs) == 24);
static_assert(offsetof(ncclCollConfig_t, cgaClusterSize) == 36 && offsetof(ncclCollConfig_t, algSelection) == 40);
static_assert(offsetof(ncclCollConfig_t, forceAlgSelection) == 48 && offsetof(ncclCollConfig_t, CTAPolicy) == 52);
static_assert(offsetof(ncclCollConfig_t, userProfilerTag) == 56);
static_assert(offsetof(ncclCollConfig_t, launchCompletionEvent) == 64 && sizeof(ncclCollConfig_t) == 72);

static_assert(offsetof(ncclEncryptionConfig_t, mode) == 16 && offsetof(ncclEncryptionConfig_t, psk) == 24);
static_assert(sizeof(ncclEncryptionConfig_t) == 32);
static_assert(offsetof(ncclSimInfo_t, estimatedTime) == 16 && sizeof(ncclSimInfo_t) == 24);

static_assert(offsetof(ncclCommProperties_t, rank) == 16 && offsetof(ncclCommProperties_t, deviceApiSupport) == 32);
static_assert(offsetof(ncclCommProperties_t, multimemSupport) == 33 && offsetof(ncclCommProperties_t, ginType) == 36);
static_assert(offsetof(ncclCommProperties_t, nLsaTeams) == 40 && offsetof(ncclCommProperties_t, hostRmaSupport) == 44);
static_assert(offsetof(ncclCommProperties_t, railedGinType) == 48 && offsetof(ncclCommProperties_t, commHash) == 56);
static_assert(offsetof(ncclCommProperties_t, ginMinStride) == 64 && offsetof(ncclCommProperties_t, ginSupport) == 72);
static_assert(offsetof(ncclCommProperties_t, devCommRuntimeVersionSize) == 136);
static_assert(offsetof(ncclCommProperties_t, cftSupport) == 144 && sizeof(ncclCommProperties_t) == 152);

static_assert(sizeof(ncclWaitSignalDesc_t) == 16 && sizeof(ncclTeam_t) == 12);
