/* types.h: the types of Weft's C interface: results, data types, reductions, handles, settings. Enum values equal
 * NCCL's where NCCL has them. */
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

/* A fixed underlying type in C++: a value out of range is then a wrong argument, not undefined behaviour. */
#ifdef __cplusplus
#define WEFT_ENUM enum : int
#else
#define WEFT_ENUM enum
#endif

/* The result of a call. After an error weftGetLastError has the sentence. */
typedef WEFT_ENUM{weftSuccess = 0,         weftUnhandledCudaError = 1, /* a CUDA call failed */
                  weftSystemError = 2,     /* the operating system refused memory, a descriptor or a socket */
                  weftInternalError = 3,   /* a bug in Weft: please report the text of weftGetLastError */
                  weftInvalidArgument = 4, /* an argument is wrong; nothing was done */
                  weftInvalidUsage = 5,    /* the call is wrong at this place: a second thread, an open group, fork */
                  weftRemoteError = 6,     /* another rank died, left or aborted */
                  weftInProgress = 7,      /* not done yet, no error: a non-blocking communicator, weftStreamTest */
                  weftTimeout = 8,         /* no progress before the deadline; the text names the late ranks */
                  weftMismatch = 9,        /* the ranks' calls differ; the text names both */
                  weftNumResults = 10} weftResult_t;

/* The types of elements. Some have two names, as in NCCL. */
typedef WEFT_ENUM{weftInt8 = 0,        weftChar = 0,  weftUint8 = 1,   weftInt32 = 2,   weftInt = 2,
                  weftUint32 = 3,      weftInt64 = 4, weftUint64 = 5,  weftFloat16 = 6, weftHalf = 6,
                  weftFloat32 = 7,     weftFloat = 7, weftFloat64 = 8, weftDouble = 8,  weftBfloat16 = 9,
                  weftFloat8e4m3 = 10, /* saturates at 448; no infinities */
                  weftFloat8e5m2 = 11, /* saturates at 57344 when converting from finite values */
                  weftNumTypes = 12} weftDataType_t;

/* The reductions, equal on CPU and GPU. Integers wrap. Min and max propagate NaN. 16- and 8-bit floats accumulate in
 * fp32 where one place sees all contributions. Avg avoids overflow of floats and truncates integers toward 0. */
typedef WEFT_ENUM{weftSum = 0,
                  weftProd = 1,
                  weftMax = 2,
                  weftMin = 3,
                  weftAvg = 4,
                  weftBand = 5, /* bitwise and, or, exclusive or: integers only; not in NCCL */
                  weftBor = 6,
                  weftBxor = 7,
                  weftNumOps = 8, /* from here to weftMaxRedOp: weftRedOpCreate, weftRedOpCreatePreMulSum */
                  weftMaxRedOp = 0x7fffffff} weftRedOp_t;

/* The memory of weftRedOpCreatePreMulSum's scalar: the communicator's device, read by each kernel when it runs; or host
 * memory, read at once. */
typedef WEFT_ENUM{weftScalarDevice = 0, weftScalarHostImmediate = 1} weftScalarResidence_t;

/* A user's reduction (weftRedOpCreate): writes left[i] op right[i] to result[i] for each i < `count` elements.
 * left, right, result  elements of `datatype` in host memory, aligned as the caller's buffers are. The function does
 *                      not change left and right. result may be one of them, and otherwise overlaps neither
 * context              the argument of weftRedOpCreate
 * It is associative, gives equal bits on all ranks, returns, and calls Weft on no communicator of its group or stream.
 * It runs in the calling or the stream's thread. A C++ exception ends the call on all ranks; longjmp is not allowed. */
typedef void (*weftRedOpFunction_t)(const void* left, const void* right, void* result, size_t count,
                                    weftDataType_t datatype, void* context);

/* A communicator: this process's membership in a group of ranks. */
typedef struct weftComm* weftComm_t;

/* The stream of a call: a CUDA stream (this is the type of cudaStream_t and CUstream), or a weftHostStream_t for host
 * memory. NULL: a call on host memory blocks, a call on device memory uses the legacy stream. */
typedef struct CUstream_st* weftStream_t;
/* A stream for host memory, made by weftStreamCreate. It has the type of weftStream_t, so that every call takes it;
 * CUDA does not know it. */
typedef weftStream_t weftHostStream_t;

/* Calls that weftGroupPrepare keeps. */
typedef struct weftPrepared* weftPrepared_t;

/* A window: memory that all ranks read and write (weftCommWindowRegister). */
typedef struct weftWindow* weftWindow_t;

#define WEFT_WIN_DEFAULT 0 /* weftCommWindowRegister */

#define WEFT_SIGNALS 16        /* signal indices in a context, for each pair of ranks; NCCL has only 0 */
#define WEFT_SIGNAL_CONTEXTS 4 /* contexts, each with its own signals; NCCL has only 0 */

/* Signals that weftWaitSignal waits for. */
typedef struct {
    int opCnt;  /* number of signals, at least 0 */
    int peer;   /* the rank that sends them */
    int sigIdx; /* signal index, 0 to WEFT_SIGNALS - 1 */
    int ctx;    /* context, 0 to WEFT_SIGNAL_CONTEXTS - 1 */
} weftWaitSignalDesc_t;

#define WEFT_STREAM_ALL UINT64_MAX     /* weftStreamTest, weftStreamWait: all calls so far */
#define WEFT_STREAM_LOWEST_PRIORITY 19 /* weftStreamCreateWithPriority: 0 is the highest */

#define WEFT_SPLIT_NOCOLOR (-1) /* weftCommSplit: this rank gets no new communicator */
#define WEFT_SHRINK_DEFAULT 0   /* weftCommShrink: the communicator is healthy and lives on */
#define WEFT_SHRINK_ABORT 1     /* weftCommShrink: its calls end first; it may have failed */

/* The name of one communicator, from weftGetUniqueId. The bytes hold a secret. */
#define WEFT_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[WEFT_UNIQUE_ID_BYTES];
} weftUniqueId;

/* Settings of one communicator. Start from WEFT_CONFIG_INITIALIZER. A field that stays WEFT_CONFIG_UNDEF_INT or NULL
 * takes the environment's value or the default. The struct grows at its end only, by whole 8 bytes, and `size` tells the
 * caller's version. */
#define WEFT_CONFIG_UNDEF_INT INT32_MIN
#define WEFT_CONFIG_MAGIC 0x77656674u
typedef struct {
    size_t size;      /* sizeof(weftConfig_t) of the caller */
    unsigned magic;   /* WEFT_CONFIG_MAGIC */
    unsigned version; /* WEFT_VERSION_CODE of the caller */
    int blocking;     /* 1, the default: calls without a stream return when done; 0: they return weftInProgress */
    int reserved;
    int64_t timeoutMs;     /* a call without progress for this long fails; 0 = never, negative = undefined */
    int64_t initTimeoutMs; /* the same for init, split and shrink */
    const char* commName;  /* shown in logs and errors; copied */
    const char* algo;      /* as WEFT_ALGO; copied; rank 0's value counts for all ranks */
    int deterministic;     /* as WEFT_DETERMINISTIC, 1 or 0; rank 0's value counts for all ranks */
    int64_t device;        /* this rank's CUDA device, or WEFT_DEVICE_NONE; undefined: the current one. A child of
                              split or shrink has its parent's device */
    int maxBlocks;         /* as WEFT_GPU_BLOCKS, 1 to 64: blocks of a kernel at most; rank 0's value counts for all
                              ranks */
    int minBlocks;         /* as WEFT_GPU_MIN_BLOCKS, 1 to 64: blocks of a collective's kernel at least, as far as the
                              most allows; rank 0's value counts for all ranks */
    int launchOrderImplicit; /* as WEFT_GPU_LAUNCH_ORDER, 1 or 0; rank 0's value counts for all ranks */
    int blockPolicy;         /* as WEFT_GPU_BLOCK_POLICY, WEFT_BLOCK_POLICY_*; rank 0's value counts for all ranks */
} weftConfig_t;
#define WEFT_BLOCK_POLICY_DEFAULT 0 /* kernels move the data */
/* All-gather and all-to-all on device memory use copy engines and no kernel, if all ranks have registered their send
 * buffers; otherwise kernels. Such a call blocks until all ranks have made it: ranks of one thread need a group. */
#define WEFT_BLOCK_POLICY_ZERO 1    /* copy engines, where they can; see docs/guide/gpu.md, Without kernels */
#define WEFT_DEVICE_NONE (-1) /* the communicator serves host memory only, whichever device is current */
#define WEFT_CONFIG_INITIALIZER                                                                                   \
    {                                                                                                             \
        sizeof(weftConfig_t), WEFT_CONFIG_MAGIC, WEFT_VERSION_CODE, WEFT_CONFIG_UNDEF_INT, 0, -1, -1, NULL, NULL, \
            WEFT_CONFIG_UNDEF_INT, WEFT_CONFIG_UNDEF_INT, WEFT_CONFIG_UNDEF_INT, WEFT_CONFIG_UNDEF_INT,           \
            WEFT_CONFIG_UNDEF_INT, WEFT_CONFIG_UNDEF_INT                                                      \
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

/* Settings of single calls (weftCommSetCallConfig). Start from WEFT_CALL_CONFIG_INITIALIZER. A field that stays
 * undefined takes the communicator's value. The struct grows at its end only, by whole 8 bytes. */
#define WEFT_CALL_CONFIG_MAGIC 0x77656663u
typedef struct {
    size_t size;       /* sizeof(weftCallConfig_t) of the caller */
    unsigned magic;    /* WEFT_CALL_CONFIG_MAGIC */
    int channels;      /* rings that share a message, 1 to 64; 0: Weft chooses; equal on all ranks */
    int64_t timeoutMs; /* as in weftConfig_t; may differ between ranks */
    const char* algo;  /* as WEFT_ALGO; copied; equal on all ranks */
    int priority;      /* of kernels on device memory, as in CUDA: lower is sooner; may differ between ranks */
    int minBlocks;     /* as in weftConfig_t; equal on all ranks */
    int maxBlocks;     /* as in weftConfig_t; equal on all ranks. Kernels of algorithms over connections, as ring, keep
                          the blocks that the communicator made for them */
    int blockPolicy;   /* as in weftConfig_t; equal on all ranks */
} weftCallConfig_t;
#define WEFT_CALL_CONFIG_INITIALIZER \
    {                                                                                                        \
        sizeof(weftCallConfig_t), WEFT_CALL_CONFIG_MAGIC, WEFT_CONFIG_UNDEF_INT, -1, NULL, WEFT_CONFIG_UNDEF_INT, \
            WEFT_CONFIG_UNDEF_INT, WEFT_CONFIG_UNDEF_INT, WEFT_CONFIG_UNDEF_INT                               \
    }

/* The kinds of memory that weftCommMemStats counts. */
typedef WEFT_ENUM{
    weftMemFlagBlock = 0,  /* this rank's slots of flag blocks: shared memory */
    weftMemConnection = 1, /* this rank's receiving ends of connections: shared memory */
    weftMemHeap = 2,       /* plans, schedules, scratch: private memory */
    weftMemDevice = 3,     /* buffers on this rank's GPU that other ranks reach: device memory */
    weftMemTotal = 4       /* the sum of the others */
} weftMemStat_t;

#ifdef __cplusplus
}
#endif
#endif
