/* types.h: the numbers of Weft's C interface: results, data types, reductions, handles. Values equal NCCL's where NCCL
 * has them, so that a port is a rename. */
#ifndef WEFT_TYPES_H
#define WEFT_TYPES_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_MAJOR 0
#define WEFT_MINOR 1
#define WEFT_PATCH 0
/* 10000 * major + 100 * minor + patch, as weftGetVersion returns it. */
#define WEFT_VERSION_CODE (WEFT_MAJOR * 10000 + WEFT_MINOR * 100 + WEFT_PATCH)

/* In C++ with a fixed type, so that a number out of range is a wrong argument and not undefined behaviour. */
#ifdef __cplusplus
#define WEFT_ENUM enum : int
#else
#define WEFT_ENUM enum
#endif

/* What a call ends with. After anything but weftSuccess weftGetLastError has a sentence. */
typedef WEFT_ENUM{
    weftSuccess = 0,         weftUnhandledCudaError = 1, /* a CUDA call failed */
    weftSystemError = 2,     /* the operating system refused: memory, descriptors, sockets */
    weftInternalError = 3,   /* a bug in Weft: please report the last-error text */
    weftInvalidArgument = 4, /* an argument is wrong; the last-error text says what to change */
    weftInvalidUsage = 5,    /* the call is wrong at this place: two threads, an open group, a child after fork */
    weftRemoteError = 6,     /* another rank died, aborted or failed */
    weftInProgress = 7,      /* not done yet: no failure (communicators that do not block, weftStreamTest) */
    weftTimeout = 8,         /* the deadline passed; the last-error text names the late ranks */
    weftMismatch = 9,        /* the ranks called different things; the last-error text names both */
    weftNumResults = 10} weftResult_t;

/* The types of elements; one that has several names has them as in NCCL. */
typedef WEFT_ENUM{weftInt8 = 0,        weftChar = 0,  weftUint8 = 1,   weftInt32 = 2,   weftInt = 2,
                  weftUint32 = 3,      weftInt64 = 4, weftUint64 = 5,  weftFloat16 = 6, weftHalf = 6,
                  weftFloat32 = 7,     weftFloat = 7, weftFloat64 = 8, weftDouble = 8,  weftBfloat16 = 9,
                  weftFloat8e4m3 = 10, /* saturates at 448; no infinities */
                  weftFloat8e5m2 = 11, /* saturates at 57344 when converting from finite values */
                  weftNumTypes = 12} weftDataType_t;

/* The reductions, alike on CPU and GPU. Integers wrap. Min and max propagate NaN. 16- and 8-bit floats accumulate in
 * fp32 wherever one place sees all contributions. Avg lets no sum of floats overflow, and truncates integers toward 0
 * (docs/determinism.md). Operands stay in rank order where the algorithm allows it, the lower rank's on the left. */
typedef WEFT_ENUM{weftSum = 0,
                  weftProd = 1,
                  weftMax = 2,
                  weftMin = 3,
                  weftAvg = 4,
                  weftBand = 5, /* the bits' and, or, exclusive or: integers only; NCCL has no such */
                  weftBor = 6,
                  weftBxor = 7,
                  weftNumOps = 8, /* from here to weftMaxRedOp: made by weftRedOpCreate and weftRedOpCreatePreMulSum */
                  weftMaxRedOp = 0x7fffffff} weftRedOp_t;

/* Where weftRedOpCreatePreMulSum finds its scalar: in memory of the communicator's device, read by each kernel when it
 * runs; or in host memory, read at once. */
typedef WEFT_ENUM{weftScalarDevice = 0, weftScalarHostImmediate = 1} weftScalarResidence_t;

/* A reduction of the user's (weftRedOpCreate): writes left[i] op right[i] to result[i] for each i < `count`. `left` and
 * `right` hold elements of type `datatype` in host memory, aligned as the caller's buffers are, and must not be
 * changed; `result` is either of them or overlaps neither. `context` is what weftRedOpCreate was given. */
typedef void (*weftRedOpFunction_t)(const void* left, const void* right, void* result, size_t count,
                                    weftDataType_t datatype, void* context);

typedef struct weftComm* weftComm_t;         /* a communicator: this process's membership in a group of ranks */
typedef struct weftStream* weftStream_t;     /* a CUDA stream, or one of weftStreamCreate; NULL blocks on host memory */
typedef struct weftPrepared* weftPrepared_t; /* calls prepared by weftGroupPrepare */

typedef struct weftWindow* weftWindow_t; /* memory that all ranks read and write: weftCommWindowRegister */

/* weftCommWindowRegister: what is asked of a window. Weft keeps the order of what one rank does to another one's part
 * in any case. */
#define WEFT_WIN_DEFAULT 0
#define WEFT_WIN_COLL_SYMMETRIC 1 /* for collectives on device memory: accepted, and nothing follows from it yet */
#define WEFT_WIN_STRICT_ORDERING 2

#define WEFT_SIGNALS 16        /* signal indices of a context, of each pair of ranks: 0 to 15; NCCL has 0 alone */
#define WEFT_SIGNAL_CONTEXTS 4 /* contexts, each with signals of its own: 0 to 3; NCCL has 0 alone */

/* What weftWaitSignal waits for. */
typedef struct {
    int opCnt;  /* signals, at least 0 */
    int peer;   /* the rank that sends them */
    int sigIdx; /* which signal, 0 to WEFT_SIGNALS - 1 */
    int ctx;    /* of which context, 0 to WEFT_SIGNAL_CONTEXTS - 1 */
} weftWaitSignalDesc_t;

#define WEFT_STREAM_ALL UINT64_MAX     /* weftStreamTest, weftStreamWait: all that the stream has been given */
#define WEFT_STREAM_LOWEST_PRIORITY 19 /* weftStreamCreateWithPriority: 0, the highest, to this */

#define WEFT_SPLIT_NOCOLOR (-1) /* weftCommSplit: no new communicator for this rank */
#define WEFT_SHRINK_DEFAULT 0   /* weftCommShrink: of a healthy communicator */
#define WEFT_SHRINK_ABORT 1     /* weftCommShrink: what is in progress ends first; also of one that has failed */

/* Names one communicator yet to be made. The bytes hold a secret, and are copied from rank to rank as they are. */
#define WEFT_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[WEFT_UNIQUE_ID_BYTES];
} weftUniqueId;

/* Settings of one communicator. Start from WEFT_CONFIG_INITIALIZER; a field left at WEFT_CONFIG_UNDEF_INT (or NULL)
 * takes the environment's value or the default. The struct grows at its end: `size` says how much of it there is. */
#define WEFT_CONFIG_UNDEF_INT INT32_MIN
#define WEFT_CONFIG_MAGIC 0x77656674u
typedef struct {
    size_t size;      /* sizeof(weftConfig_t) of the caller */
    unsigned magic;   /* WEFT_CONFIG_MAGIC */
    unsigned version; /* WEFT_VERSION_CODE of the caller */
    int blocking;     /* 1, the default: calls without a stream return when done; 0: they return weftInProgress at once,
                         and weftCommGetAsyncError tells when they are done */
    int reserved;
    int64_t timeoutMs;     /* a collective without progress for this long fails; 0 = never, negative = undefined */
    int64_t initTimeoutMs; /* the same for the meeting of the ranks at init, split and shrink */
    const char* commName;  /* shown in logs and errors; copied */
    const char* algo;  /* as WEFT_ALGO: names allowed, `^name` excluded, `collective@least-most:names`; copied; rank 0's
                              counts for all ranks */
    int deterministic; /* as WEFT_DETERMINISTIC: 1: reductions in rank order; 0: the fastest; rank 0's counts */
} weftConfig_t;
#define WEFT_CONFIG_INITIALIZER                                                                                   \
    {                                                                                                             \
        sizeof(weftConfig_t), WEFT_CONFIG_MAGIC, WEFT_VERSION_CODE, WEFT_CONFIG_UNDEF_INT, 0, -1, -1, NULL, NULL, \
            WEFT_CONFIG_UNDEF_INT                                                                                 \
    }

/* The facts of an error: weftGetLastErrorInfo. Start from WEFT_ERROR_INFO_INITIALIZER. The struct grows at its end only. */
typedef struct {
    size_t size;       /* sizeof(weftErrorInfo_t) of the caller */
    const char* id;    /* as "mismatch.count": `weft explain ID`, docs/reference/errors.md; constant; empty: no error */
    weftResult_t code; /* weftSuccess: no error */
    int failedRank;    /* the rank of the communicator that failed or made the wrong call; -1: unknown */
    int peer;          /* the other rank concerned; -1: none, or unknown */
    const char* operation; /* as "all_reduce"; constant; NULL: unknown */
    uint64_t sequence;     /* of the operation on its communicator, from 1 on; 0: unknown */
} weftErrorInfo_t;
#define WEFT_ERROR_INFO_INITIALIZER \
    { sizeof(weftErrorInfo_t), "", weftSuccess, -1, -1, NULL, 0 }

/* What calls ask for beside their arguments (weftCommSetCallConfig). Start from WEFT_CALL_CONFIG_INITIALIZER; what is
 * left so is as the communicator has it. The struct grows at its end only. */
#define WEFT_CALL_CONFIG_MAGIC 0x77656663u
typedef struct {
    size_t size;       /* sizeof(weftCallConfig_t) of the caller */
    unsigned magic;    /* WEFT_CALL_CONFIG_MAGIC */
    int channels;      /* rings that share the message, 1 to 64; 0: Weft chooses; the same on all ranks */
    int64_t timeoutMs; /* a call without progress fails after it; 0 = never, negative = undefined; each rank's own */
    const char* algo;  /* as WEFT_ALGO, for these calls; copied; the same on all ranks */
    int priority;      /* of kernels of calls on device memory, lower is sooner, as in CUDA; each rank's own */
} weftCallConfig_t;
#define WEFT_CALL_CONFIG_INITIALIZER \
    { sizeof(weftCallConfig_t), WEFT_CALL_CONFIG_MAGIC, WEFT_CONFIG_UNDEF_INT, -1, NULL, WEFT_CONFIG_UNDEF_INT }

/* The kinds of memory that weftCommMemStats counts; weftMemTotal is the sum of the others. */
typedef WEFT_ENUM{
    weftMemBoard = 0,                   /* this rank's slots of boards, shared memory */
    weftMemConnection = 1,              /* this rank's receiving ends of connections, shared memory */
    weftMemHeap = 2,                    /* plans, schedules, scratch: private memory */
    weftMemTotal = 3, weftMemDevice = 4 /* what this rank shares with others on its GPU: device memory */
} weftMemStat_t;

#ifdef __cplusplus
}
#endif
#endif
