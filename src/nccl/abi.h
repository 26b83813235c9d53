/* abi.h: NCCL's C interface in the layout that programs linked against libnccl.so.2 have compiled in. Layouts are those
 * of NCCL 2.32. The field `version` of a struct says which of its fields the caller knows. */
#ifndef WEFT_NCCL_ABI_H
#define WEFT_NCCL_ABI_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define WEFT_NCCL_ENUM enum : int
extern "C" {
#else
#define WEFT_NCCL_ENUM enum
#endif
#define WEFT_NCCL_API __attribute__((visibility("default")))

/* ncclGetVersion returns 2.30.7. Programs choose features by it, and Weft lacks some of 2.31 and 2.32. */
#define WEFT_NCCL_VERSION 23007
/* Codes of versions that added fields: 10000 * major + 100 * minor + patch. */
#define WEFT_NCCL_2_30 23000
#define WEFT_NCCL_2_31 23100
#define WEFT_NCCL_2_32 23200

#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_API_MAGIC 0xcafebeefu
#define NCCL_SPLIT_NOCOLOR (-1)

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef struct ncclParamHandle* ncclParamHandle_t;
typedef struct CUstream_st* cudaStream_t; /* as CUDA defines it */
typedef struct CUevent_st* cudaEvent_t;
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef WEFT_NCCL_ENUM{ncclSuccess = 0,         ncclUnhandledCudaError = 1, ncclSystemError = 2, ncclInternalError = 3,
                       ncclInvalidArgument = 4, ncclInvalidUsage = 5,       ncclRemoteError = 6, ncclInProgress = 7,
                       ncclTimeout = 8,         ncclNumResults = 9} ncclResult_t;

typedef WEFT_NCCL_ENUM{ncclInt8 = 0,        ncclUint8 = 1,       ncclInt32 = 2,    ncclUint32 = 3,  ncclInt64 = 4,
                       ncclUint64 = 5,      ncclFloat16 = 6,     ncclFloat32 = 7,  ncclFloat64 = 8, ncclBfloat16 = 9,
                       ncclFloat8e4m3 = 10, ncclFloat8e5m2 = 11, ncclNumTypes = 12} ncclDataType_t;

/* ncclRedOpCreatePreMulSum returns numbers from ncclNumOps on. */
typedef WEFT_NCCL_ENUM{ncclSum = 0,
                       ncclProd = 1,
                       ncclMax = 2,
                       ncclMin = 3,
                       ncclAvg = 4,
                       ncclNumOps = 5,
                       ncclMaxRedOp = 0x7fffffff} ncclRedOp_t;

typedef WEFT_NCCL_ENUM{ncclScalarDevice = 0, ncclScalarHostImmediate = 1} ncclScalarResidence_t;

/* Bits of winFlags of ncclCommWindowRegister. */
#define NCCL_WIN_DEFAULT 0x0
#define NCCL_WIN_COLL_SYMMETRIC 0x1
#define NCCL_WIN_STRICT_ORDERING 0x2
#define NCCL_WIN_GIN_ONLY 0x4
#define NCCL_WIN_CFT_COUNTED 0x8

/* CTAPolicy: bits. */
#define NCCL_CTA_POLICY_DEFAULT 0x0
#define NCCL_CTA_POLICY_EFFICIENCY 0x1
#define NCCL_CTA_POLICY_ZERO 0x2

#define NCCL_SHRINK_DEFAULT 0x0
#define NCCL_SHRINK_ABORT 0x1

/* Settings of a communicator. As every struct with a version it begins with the size that the caller knows, a magic
 * number, and the caller's version. Undefined is INT_MIN or NULL. Each inner struct has the fields of one version. */
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    __extension__ struct { /* 2.28 */
        int blocking;
        int cgaClusterSize;
        int minCTAs;
        int maxCTAs;
        const char* netName;
        int splitShare;
        int trafficClass;
        const char* commName;
        int collnetEnable;
        int CTAPolicy;
        int shrinkShare;
        int nvlsCTAs;
        int nChannelsPerNetPeer;
        int nvlinkCentricSched;
    };
    __extension__ struct { /* 2.30 */
        int graphUsageMode;
        int numRmaCtx;
        int maxP2pPeers;
        int graphStreamOrdering;
    };
    __extension__ struct { /* 2.31 */
        int launchOrderImplicit;
        int numRmaSig;
        int rmaEagerInit;
        int hostCftMode;
        int nvlsHostMode;
    };
} ncclConfig_t;

/* A vendor's option of one call. */
typedef struct ncclConfigExt {
    struct ncclConfigExt* next;
    struct {
        int vendorId;
        int optionId;
    } key;
    union {
        int i;
        const char* s;
        void* raw;
    } val;
} ncclConfigExt_t;

/* Settings of one collective: nccl...Config. */
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    ncclConfigExt_t* ext;
    int minCTAs;
    int maxCTAs;
    int nvlsCTAs;
    int cgaClusterSize;
    const char* algSelection;
    int forceAlgSelection; /* 1: a choice that cannot be carried out is an error */
    int CTAPolicy;
    uint64_t userProfilerTag;
    cudaEvent_t launchCompletionEvent; /* 2.32 */
} ncclCollConfig_t;

/* Encryption of NCCL's sockets: 2.32. */
#define NCCL_ENCRYPTION_MODE_NONE 0
#define NCCL_ENCRYPTION_MODE_PSK 1
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int mode;
    const char* psk;
} ncclEncryptionConfig_t;

#define NCCL_SIM_INFO_MAGIC 0x74685283u
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime;
} ncclSimInfo_t;

/* Facts of a communicator. The library writes the fields of the caller's version. */
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    __extension__ struct { /* 2.30 */
        int rank;
        int nRanks;
        int cudaDev;
        int nvmlDev;
        bool deviceApiSupport;
        bool multimemSupport;
        int ginType;
        int nLsaTeams;
        bool hostRmaSupport;
        int railedGinType;
    };
    __extension__ struct { /* 2.31 */
        uint64_t commHash;
        int ginMinStride;
        int ginConnectionType;
        bool ginSupport[64];
        size_t devCommRuntimeVersionSize;
    };
    bool cftSupport[3]; /* 2.32 */
} ncclCommProperties_t;

/* The counters of ncclCommMemStats: bytes of device memory. Suspended: 1 if the memory is released. */
typedef WEFT_NCCL_ENUM{ncclStatGpuMemSuspend = 0, ncclStatGpuMemSuspended = 1, ncclStatGpuMemPersist = 2,
                       ncclStatGpuMemTotal = 3} ncclCommMemStat_t;

typedef struct {
    int opCnt;
    int peer;
    int sigIdx;
    int ctx;
} ncclWaitSignalDesc_t;

/* The device API. Weft does not imitate the structs that NCCL's device code reads. */
typedef struct {
    int nRanks;
    int rank;
    int stride;
} ncclTeam_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct {
    void* multicastBase;
} ncclMultimemHandle_t;

/* Both spellings of each function: tools that trace NCCL override ncclX and call pncclX. */
#define WEFT_NCCL_FUNCTION(type, name, parameters, arguments) \
    WEFT_NCCL_API type nccl##name parameters;                 \
    WEFT_NCCL_API type pnccl##name parameters;
#define WEFT_NCCL_UNSUPPORTED(name, parameters, arguments, remedy) \
    WEFT_NCCL_FUNCTION(ncclResult_t, name, parameters, arguments)
#include "src/nccl/functions.def"
#undef WEFT_NCCL_FUNCTION
#undef WEFT_NCCL_UNSUPPORTED

/* Exported by NCCL in this spelling only. */
WEFT_NCCL_API void ncclResetDebugInitInternal(void);

#ifdef __cplusplus
}
#endif
#endif
