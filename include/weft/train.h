/* train.h: training primitives over weft.h: data-parallel training (DDP) with gradients in buckets, models that are
 * sharded in units (FSDP, HSDP, ZeRO), and checkpoints.
 *
 * A program computes its own gradients. It registers its parameters once. In each iteration it says which gradients are
 * ready. Their average over all ranks is computed while the program computes others.
 * Iteration: weftTrainDdpBegin; for each parameter: compute its gradient, weftTrainDdpGradientReady;
 * weftTrainDdpFinish.
 * Sharded iteration: for each unit: weftTrainShardGather, compute, weftTrainShardRelease; then the same for the
 * gradients, the last unit first, with weftTrainShardReduceScatter; weftTrainShardFinish.
 * Step: weftTrainScalerUnscale, weftTrainGradientNorm, weftTrainOptimizerStep, each on whole parameters or on shards.
 * Contract: results, errors, threads and processes are as weft.h says. Thread-bound means one thread for each object at
 * a time.
 * Memory: all parameters, buffers and gradients of one object lie in host memory, or on the communicator's device.
 * Boxes of checkpoints lie in host memory or on any device.
 * Streams: on host memory stream is NULL, and calls return when they are done. On a device it is a CUDA stream of that
 * device. The work of a call follows the stream's work so far, and the stream waits for its results. A captured stream
 * is an error: iterations cannot become part of a CUDA graph.
 * Groups: no function here may be called between weftGroupStart and weftGroupEnd.
 * Failure: after weftMismatch, weftRemoteError, weftTimeout, weftSystemError or a failed hook the object has ended on
 * all ranks: its calls return the same error, and only its Destroy function is left. The caller's communicator lives
 * on.
 * Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
 * Guide: docs/guide/training.md. */
#ifndef WEFT_TRAIN_H
#define WEFT_TRAIN_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Training types ---- */

/* A registered model of one rank, and the state of its gradients: data-parallel training. */
typedef struct weftTrainDdp* weftTrainDdp_t;

/* A parameter or a buffer of the model. Start from WEFT_TRAIN_TENSOR_INITIALIZER. In an array all entries have the same
 * `size`. The struct grows at its end only. */
typedef struct {
    size_t size;      /* sizeof(weftTrainTensor_t) of the caller */
    const char* name; /* shown in errors, equal on all ranks; copied */
    void* data;       /* the values: count elements */
    void* gradient;   /* the caller's own memory for the gradient, or NULL: it lives in its bucket. Buffers: NULL */
    size_t count;     /* elements; may be 0 */
    weftDataType_t datatype; /* parameters: float16, bfloat16, float32 or float64. Buffers: any */
    size_t rows;             /* of the first dimension, for weftTrainShardRows; 0: shape[0], or each element is a row */
    int dims; /* parameters of weftTrainShardCreate, for its boxes: 0 to WEFT_TRAIN_DIMS_MAX; -1: the elements
                                are one dimension */
    const size_t* shape; /* dims numbers, whose product is count; copied. NULL if dims is 0 or -1 */
} weftTrainTensor_t;
#define WEFT_TRAIN_TENSOR_INITIALIZER \
    { sizeof(weftTrainTensor_t), NULL, NULL, NULL, 0, weftFloat32, 0, -1, NULL }

/* A bucket, as a hook sees it: gradients of one datatype, one behind the other. All of it is valid during the hook. */
typedef struct {
    size_t size;             /* sizeof(weftTrainBucket_t) of the library */
    int index;               /* from 0, the order of the launches; equal on all ranks */
    void* data;              /* in: this rank's gradients. Out: the result, equal on all ranks */
    size_t count;            /* elements, at least 1 */
    weftDataType_t datatype; /* of all elements */
    int divisor;             /* the average is the sum over all ranks divided by it */
    size_t parameterCount;   /* how many parameters the bucket has */
    const int* parameters;   /* their numbers, in the order in which they were registered */
    const size_t* offsets;   /* where each one begins in data, in elements */
    uint64_t layout;         /* changes when the buckets are rebuilt: state that a hook keeps for them is void then */
    weftComm_t comm;         /* for the hook's calls; all ranks make the same ones */
    weftStream_t stream;     /* for the hook's calls: NULL on host memory, or a CUDA stream of the object */
    void* owner;             /* for weftTrainBucketScratch */
} weftTrainBucket_t;

/* A hook: replaces the bucket's gradients by their average over all ranks, exactly or approximately.
 *
 * bucket   host or device memory; changed in place
 *
 * context  config.hookContext
 *
 * All ranks call it for the same buckets in one order, one at a time. On host memory it runs in a thread of the object
 * or in weftTrainDdpFinish, and its calls on bucket->comm return when they are done. On a device it runs in the
 * caller's thread and enqueues its work on bucket->stream. It returns weftSuccess or an error, which ends the object on
 * all ranks. It must not throw, nor call a weftTrainDdp function of its object: weftInvalidUsage. */
typedef weftResult_t (*weftTrainHook_t)(const weftTrainBucket_t* bucket, void* context);

/* Whether an iteration reduces gradients, or the caller adds them up locally. */
typedef WEFT_ENUM{weftTrainSynchronize = 0, weftTrainAccumulate = 1} weftTrainMode_t;

/* The divisor of the average, if ranks have joined (weftTrainDdpJoin): all ranks of the communicator, or those that
 * still take part with inputs of their own. */
typedef WEFT_ENUM{weftTrainDivideByRanks = 0, weftTrainDivideByActive = 1} weftTrainDivisor_t;

/* Settings of one object, equal on all ranks. Start from WEFT_TRAIN_DDP_CONFIG_INITIALIZER. The struct grows at its end
 * only. */
#define WEFT_TRAIN_DDP_CONFIG_MAGIC 0x77656474u
typedef struct {
    size_t size;           /* sizeof(weftTrainDdpConfig_t) of the caller */
    unsigned magic;        /* WEFT_TRAIN_DDP_CONFIG_MAGIC */
    unsigned version;      /* WEFT_VERSION_CODE of the caller */
    size_t bucketCapBytes; /* a bucket is full from these bytes on; 0: 1 MiB for the first of a type, then 25 MiB */
    weftTrainDivisor_t divisor; /* of the average */
    int findUnused;             /* 1: a parameter may have no gradient in an iteration; costs an all-reduce each time */
    int staticGraph;            /* 1: every iteration reports the same gradients as the first one, equally often */
    int broadcastBuffers;       /* 1: each weftTrainDdpBegin that synchronises broadcasts the buffers of rank 0 */
    int join;                   /* 1: ranks may have different numbers of iterations: weftTrainDdpJoin */
    weftTrainHook_t hook;       /* NULL: weftTrainHookAverage */
    void* hookContext;          /* is passed to the hook */
} weftTrainDdpConfig_t;
#define WEFT_TRAIN_DDP_CONFIG_INITIALIZER                                                                              \
    {                                                                                                                  \
        sizeof(weftTrainDdpConfig_t), WEFT_TRAIN_DDP_CONFIG_MAGIC, WEFT_VERSION_CODE, 0, weftTrainDivideByRanks, 0, 0, \
            1, 0, NULL, NULL                                                                                           \
    }

/* A registered model of one rank whose parameters are sharded in units: FSDP, HSDP, ZeRO. */
typedef struct weftTrainShard* weftTrainShard_t;

/* A list of parameters that is gathered and released together, such as a layer. Start from WEFT_TRAIN_UNIT_INITIALIZER.
 * In an array all entries have the same `size`. The struct grows at its end only. */
typedef struct {
    size_t size;                         /* sizeof(weftTrainUnit_t) of the caller */
    const char* name;                    /* unlike other units', equal on all ranks; copied */
    const weftTrainTensor_t* parameters; /* at least one; copied. data: the first values, host memory or memory of the
                                            model's device, which count on rank 0 only; other ranks may pass
                                            NULL. gradient: NULL */
    size_t parameterCount;               /* entries of parameters */
    int reshardRanks; /* after the forward pass the unit is sharded over groups of so many ranks; 0: over all ranks of
                         the shard group; 1: each rank keeps it, which suits the last unit of the forward pass */
} weftTrainUnit_t;
#define WEFT_TRAIN_UNIT_INITIALIZER \
    { sizeof(weftTrainUnit_t), NULL, NULL, 0, 0 }

/* How a unit is divided among ranks: into equal parts of its bytes (ZeRO), which saves copies, or into rows of each
 * parameter (FSDP2), which keeps rows together. */
typedef WEFT_ENUM{weftTrainShardFlat = 0, weftTrainShardRows = 1} weftTrainSharding_t;

/* The memory that is sharded, as in ZeRO: optimizer states, which are the caller's; gradients, too; parameters, too.
 * The rest is kept whole on each rank. */
typedef WEFT_ENUM{weftTrainShardOptimizer = 1, weftTrainShardGradients = 2,
                  weftTrainShardParameters = 3} weftTrainStage_t;

/* The pass after which a unit is released. */
typedef WEFT_ENUM{weftTrainForward = 0, weftTrainBackward = 1} weftTrainPass_t;

/* Settings of one sharded model, equal on all ranks. Start from WEFT_TRAIN_SHARD_CONFIG_INITIALIZER. The struct grows
 * at its end only. */
#define WEFT_TRAIN_SHARD_CONFIG_MAGIC 0x77656473u
typedef struct {
    size_t size;                  /* sizeof(weftTrainShardConfig_t) of the caller */
    unsigned magic;               /* WEFT_TRAIN_SHARD_CONFIG_MAGIC */
    unsigned version;             /* WEFT_VERSION_CODE of the caller */
    weftTrainSharding_t sharding; /* of all units */
    weftTrainStage_t stage;       /* the memory that is sharded */
    int shardRanks; /* consecutive ranks that share one copy of the model (HSDP); 0: all ranks of the communicator */
    double divisor; /* gradients are the sum over all ranks divided by it; 0: the number of ranks. With another number
                       bfloat16 gradients are multiplied by 1 / divisor in bfloat16, as in PyTorch */
    int onDevice;   /* 1: the model lies on the communicator's device; 0: in host memory */
    /* Mixed precision of float32 parameters: float32, float16 or bfloat16. Of two neighbours that differ
     * one is float32. The optimizer's values stay float32. weftNumTypes: the default */
    weftDataType_t parameterType; /* of whole units and their gradients; default: the parameters' own */
    weftDataType_t reduceType;    /* in which gradients are reduced; default: parameterType */
    weftDataType_t outputType;    /* of reduced gradients; default: the parameters' own */
    /* Messages of whole numbers, and a float32 scale for each block (Wang et al., "ZeRO++", 2023). For float32, float16
     * and bfloat16 parameters */
    int gatherBits;    /* 8: shards are gathered as int8, and all ranks get the same bits. 0: exactly */
    int reduceBits;    /* 4 or 8: gradients are sent so, within the host and then between hosts, and added up in
                          float32. 0: exactly */
    size_t blockCount; /* elements of a block, 1 to 65536; even on a device with reduceBits 4 */
    int shardsOnHost;  /* with onDevice, 1: this rank's values and reduced gradients lie in pinned host memory (CPU
                          offload), so that the optimizer runs on the host; units and whole gradients lie on the device.
                          Without onDevice they lie in host memory in any case */
    int keepGradients; /* 1: host memory of gradients stays allocated between iterations, for a faster step. 0: it is
                          given back: weftTrainShardZeroGradients */
    int overwriteGradients; /* 1: a whole gradient begins with any numbers, for a faster step: a caller that asks for the
                               gradient of a parameter writes every element of all gradients of the unit. 0: it begins
                               with zeros */
    int poolGradients;      /* with onDevice, 1: whole gradients come from the device's memory pool and go back to it at
                          weftTrainShardFinish, by work of streams. Reductions copy them then, because other ranks cannot
                          map a pool. 0: they stay allocated */
} weftTrainShardConfig_t;
#define WEFT_TRAIN_SHARD_CONFIG_INITIALIZER                                                                    \
    {                                                                                                          \
        sizeof(weftTrainShardConfig_t), WEFT_TRAIN_SHARD_CONFIG_MAGIC, WEFT_VERSION_CODE, weftTrainShardFlat,  \
            weftTrainShardParameters, 0, 0, 0, weftNumTypes, weftNumTypes, weftNumTypes, 0, 0, 256, 0, 0, 0, 0 \
    }

/* This rank's part of a parameter: `count` elements from element `begin` on, of the parameter's datatype. Start from
 * WEFT_TRAIN_PIECE_INITIALIZER. The struct grows at its end only. */
typedef struct {
    size_t size;    /* sizeof(weftTrainPiece_t) of the caller */
    void* values;   /* for the optimizer: valid as long as the object */
    void* gradient; /* the reduced gradient, or NULL if there is none or an iteration is open. Each time at one address,
                       where zeros are after an iteration without one */
    size_t begin;   /* element of the parameter */
    size_t count;   /* elements; may be 0 */
} weftTrainPiece_t;
#define WEFT_TRAIN_PIECE_INITIALIZER \
    { sizeof(weftTrainPiece_t), NULL, NULL, 0, 0 }

/* The elements that a sharded model has moved on this rank, and its memory. Start from
 * WEFT_TRAIN_SHARD_STATS_INITIALIZER. The struct grows at its end only. */
typedef struct {
    size_t size;               /* sizeof(weftTrainShardStats_t) of the caller */
    uint64_t gatheredElements; /* of all gathers, in whole units without padding */
    uint64_t reducedElements;  /* of all reduce-scatters, likewise */
    size_t shardBytes;         /* memory that it has now for this rank's values and gradients */
    size_t wholeBytes;         /* likewise for whole units, whole gradients and messages */
    /* Bytes of messages, as if each part went to its rank directly. remote: of those, with ranks of other hosts */
    uint64_t gatheredBytes;       /* received from other ranks by gathers */
    uint64_t gatheredRemoteBytes; /* likewise */
    uint64_t reducedBytes;       /* sent to other ranks by reduce-scatters, without the sums over copies of the model */
    uint64_t reducedRemoteBytes; /* likewise */
    size_t hostBytes;            /* of shardBytes, host memory */
    size_t mostBytes;            /* the most memory of shardBytes and wholeBytes together at once, since creation */
} weftTrainShardStats_t;
#define WEFT_TRAIN_SHARD_STATS_INITIALIZER \
    { sizeof(weftTrainShardStats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Saves and loads the checkpoints of a job. */
typedef struct weftTrainCheckpoint* weftTrainCheckpoint_t;

/* The most dimensions of a tensor in a checkpoint. */
#define WEFT_TRAIN_DIMS_MAX 8

/* This rank's box of a tensor: elements offsets[d] to offsets[d] + extents[d] of each dimension d. A box in device memory
 * is copied after the work that its stream has at the call, and the call waits for the copy. Start from
 * WEFT_TRAIN_BOX_INITIALIZER. In an array all entries have the same `size`. The struct grows at its end only. */
typedef struct {
    size_t size;             /* sizeof(weftTrainBox_t) of the caller */
    const char* name;        /* of the tensor: UTF-8, not beginning with "item:" */
    void* data;              /* host or device memory: elements one behind the other, the last dimension fastest */
    weftDataType_t datatype; /* of the elements */
    int dims;                /* dimensions, at most WEFT_TRAIN_DIMS_MAX; 0: a single element */
    const size_t* shape;     /* of the whole tensor: dims numbers. NULL if dims is 0 */
    const size_t* offsets;   /* of the box: dims numbers, or NULL: zeros */
    const size_t* extents;   /* of the box: dims numbers, which may be 0, or NULL: the whole shape */
    int isRange;         /* 1: elements begin to begin + count of the whole tensor, the last dimension fastest, in place
                                of a box. offsets and extents are NULL then */
    size_t begin, count; /* elements, if isRange is 1 */
    weftStream_t stream; /* device memory: a CUDA stream. Host memory: ignored */
} weftTrainBox_t;
#define WEFT_TRAIN_BOX_INITIALIZER \
    { sizeof(weftTrainBox_t), NULL, NULL, weftFloat32, 0, NULL, NULL, NULL, 0, 0, 0, NULL }

/* Small data beside the tensors: a step, the state of a random generator, the position of a sampler. Start from
 * WEFT_TRAIN_ITEM_INITIALIZER. In an array all entries have the same `size`. The struct grows at its end only. */
typedef struct {
    size_t size;      /* sizeof(weftTrainItem_t) of the caller */
    const char* name; /* UTF-8 */
    const void* data; /* host memory */
    size_t bytes;     /* of data; may be 0 */
    int perRank;      /* 1: each rank has its own. 0: all ranks have the same bytes, which are stored once */
} weftTrainItem_t;
#define WEFT_TRAIN_ITEM_INITIALIZER \
    { sizeof(weftTrainItem_t), NULL, NULL, 0, 0 }

/* A tensor or an item of a checkpoint, as weftTrainCheckpointList finds it. Valid during the call of the function. */
typedef struct {
    size_t size;             /* sizeof(weftTrainStored_t) of the library, which only appends fields */
    const char* name;        /* of the tensor or the item */
    int isItem;              /* 1: an item, 0: a tensor */
    int rank;                /* of an item: whose it is; -1: of all ranks. Tensors: -1 */
    weftDataType_t datatype; /* items: weftUint8 */
    int dims;                /* items: 1 */
    const size_t* shape;     /* dims numbers, of the whole tensor */
    size_t bytes;            /* of the whole tensor, or of the item */
    const void* data;        /* of an item: host memory. Tensors: NULL */
} weftTrainStored_t;

/* Is called for each tensor and item. `context` is the caller's. It must not throw. */
typedef void (*weftTrainStoredFunction_t)(const weftTrainStored_t* stored, void* context);

/* When weftTrainCheckpointSave returns: once the checkpoint is on the disk, or once this rank's data is copied. */
typedef WEFT_ENUM{weftTrainSaveBlocking = 0, weftTrainSaveBackground = 1} weftTrainSave_t;

/* Copies of each rank's state in the memory of other ranks, on this rank. */
typedef struct weftTrainReplica* weftTrainReplica_t;

/* An optimizer of this rank's parts of a model, with its moments. */
typedef struct weftTrainOptimizer* weftTrainOptimizer_t;

/* A hook that sends less than the gradients, and its state. */
typedef struct weftTrainCompressor* weftTrainCompressor_t;

/* The dynamic loss scale of training with float16 gradients. */
typedef struct weftTrainScaler* weftTrainScaler_t;

/* The rule of an optimizer's step. OneBitLamb is LAMB until config.compressor sends momentum in place of gradients. */
typedef WEFT_ENUM{weftTrainSgd = 0,  weftTrainAdam = 1, weftTrainAdamW = 2,
                  weftTrainLamb = 3, weftTrainLars = 4, weftTrainOneBitLamb = 5} weftTrainAlgorithm_t;

/* This rank's part of a parameter and of its gradient, or all of it. Start from WEFT_TRAIN_PART_INITIALIZER. In an array
 * all entries have the same `size`. The struct grows at its end only. */
typedef struct {
    size_t size;                 /* sizeof(weftTrainPart_t) of the caller */
    const char* name;            /* shown in errors; copied */
    float* values;               /* float32 weights, which a step changes; NULL if only gradients are used */
    void* copy;                  /* NULL, or the values as 16-bit floats, which a step writes */
    void* gradient;              /* NULL: it has none now */
    size_t count;                /* elements of each of them; may be 0 */
    weftDataType_t copyType;     /* float16 or bfloat16 */
    weftDataType_t gradientType; /* float32, float16 or bfloat16 */
    unsigned axes;               /* bit i: the tensor is sharded over axes[i], and its ranks hold other parts; 0: each
                                    rank holds all of it. Equal on all ranks */
} weftTrainPart_t;
#define WEFT_TRAIN_PART_INITIALIZER \
    { sizeof(weftTrainPart_t), NULL, NULL, NULL, NULL, 0, weftBfloat16, weftFloat32, 0 }

/* How an optimizer reads and writes the file of config.offloadFolder. Any: by io_uring if the build, the host and the
 * kernel allow it, otherwise by threads. Uring: without io_uring the object is not made. */
typedef WEFT_ENUM{weftTrainOffloadAny = 0, weftTrainOffloadUring = 1,
                  weftTrainOffloadThreads = 2} weftTrainOffloadEngine_t;

/* Settings of an optimizer, equal on all ranks. Start from WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER. The struct grows at
 * its end only. */
#define WEFT_TRAIN_OPTIMIZER_CONFIG_MAGIC 0x7765746fu
typedef struct {
    size_t size;                    /* sizeof(weftTrainOptimizerConfig_t) of the caller */
    unsigned magic;                 /* WEFT_TRAIN_OPTIMIZER_CONFIG_MAGIC */
    unsigned version;               /* WEFT_VERSION_CODE of the caller */
    weftTrainAlgorithm_t algorithm; /* the rule of a step */
    double momentum;                /* SGD, LARS; 0: none is kept */
    double dampening;               /* SGD, LARS: a gradient enters the momentum times 1 - dampening */
    int nesterov;                   /* SGD, LARS: 1: Nesterov's momentum */
    double beta1, beta2;            /* Adam, AdamW, LAMB: the averages of gradients and of their squares */
    double epsilon;                 /* Adam, AdamW, LAMB: is added to the denominator */
    double weightDecay;             /* AdamW: of the weights; otherwise an L2 penalty */
    double trust;                   /* LARS: the trust coefficient */
    weftTrainDdp_t ddp;             /* NULL, or where the gradients come from: a step needs averages */
    weftTrainShard_t shard;         /* NULL, or where the gradients come from: a step needs a finished iteration */
    int biasCorrection;             /* Adam, AdamW, LAMB: 1: moments are divided by 1 - beta^steps; 0: they are not, and
                                       beta2 may be 1, which keeps exp_avg_sq as it is. OneBitLamb: 0 */
    weftTrainCompressor_t
        compressor;               /* OneBitLamb: the hook of config.ddp: OneBit, with momentum beta1 and layerScales */
    double leastTrust, mostTrust; /* OneBitLamb: bounds of a layer's |weights| / |update| before compression */
    double trustMean;             /* OneBitLamb: a layer's mean ratio keeps so much of its old value in a step */
    double leastFactor, mostFactor; /* OneBitLamb: bounds of the factor of that mean ratio during compression */
    double factorChange;            /* OneBitLamb: the factor changes by this share in a step at most */
    const char* offloadFolder; /* NULL, or the folder, on a disk of this host, of a file in which the moments lie; set
                                       on all ranks or none. The path may differ. For parts in host memory */
    int offloadValues;   /* with a folder, 1: the float32 values lie in the file, too. Then weftTrainOptimizerCreate
                                       reads part.values, which may be freed after it. The model uses part.copy */
    size_t offloadChunk; /* elements of an array that are read at once, 1 to 67108864, rounded up to a multiple
                                       of 1024; 0: 262144 */
    int offloadBuffers;  /* chunks of all arrays that are in memory during a step: 1 to 64. With 3 or more, reads,
                                       arithmetic and writes overlap */
    weftTrainOffloadEngine_t offloadEngine; /* how the file is read and written */
} weftTrainOptimizerConfig_t;
#define WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER                                                                       \
    {                                                                                                                 \
        sizeof(weftTrainOptimizerConfig_t), WEFT_TRAIN_OPTIMIZER_CONFIG_MAGIC, WEFT_VERSION_CODE, weftTrainSgd, 0, 0, \
            0, 0.9, 0.999, 1e-8, 0, 0.001, NULL, NULL, 1, NULL, 0.01, 10, 0.9, 0.5, 4, 0.1, NULL, 0, 0, 4,            \
            weftTrainOffloadAny                                                                                       \
    }

/* Settings of a loss scale, equal on all ranks. Start from WEFT_TRAIN_SCALER_CONFIG_INITIALIZER. The struct grows at its
 * end only. */
#define WEFT_TRAIN_SCALER_CONFIG_MAGIC 0x77657463u
typedef struct {
    size_t size;          /* sizeof(weftTrainScalerConfig_t) of the caller */
    unsigned magic;       /* WEFT_TRAIN_SCALER_CONFIG_MAGIC */
    unsigned version;     /* WEFT_VERSION_CODE of the caller */
    double scale;         /* the first one */
    double growthFactor;  /* multiplies the scale after growthInterval steps without an infinite gradient */
    double backoffFactor; /* multiplies the scale after a step with an infinite or NaN gradient */
    int growthInterval;   /* steps */
    double leastScale;    /* the scale must not fall below it */
} weftTrainScalerConfig_t;
#define WEFT_TRAIN_SCALER_CONFIG_INITIALIZER \
    { sizeof(weftTrainScalerConfig_t), WEFT_TRAIN_SCALER_CONFIG_MAGIC, WEFT_VERSION_CODE, 65536, 2, 0.5, 2000, 1 }

/* The activations of a batch-norm layer on one rank. Start from WEFT_TRAIN_BATCH_NORM_INITIALIZER. The struct grows at
 * its end only. */
typedef struct {
    size_t size;             /* sizeof(weftTrainBatchNorm_t) of the caller */
    size_t batch;            /* samples of this rank; may be 0, and may differ between ranks */
    size_t channels;         /* of each sample, at least 1, equal on all ranks */
    size_t inner;            /* elements of each channel of a sample, such as height times width */
    weftDataType_t datatype; /* of activations and their gradients: float32, float16 or bfloat16 */
    double epsilon;          /* is added to the variance */
    double momentum;         /* of the running statistics: the part of the new one */
    float* runningMean;      /* channels elements, or NULL */
    float* runningVariance;  /* channels elements, or NULL: of the unbiased variance */
} weftTrainBatchNorm_t;
#define WEFT_TRAIN_BATCH_NORM_INITIALIZER \
    { sizeof(weftTrainBatchNorm_t), 0, 1, 1, weftFloat32, 1e-5, 0.1, NULL, NULL }

/* ---- Data-parallel training ---- */

/* Registers the model and writes its object to `ddp`. All ranks of `comm` call it, in one order with their other calls.
 * Names, counts, types and settings are equal on all ranks: an error names the first difference and both ranks. If one
 * rank's arguments are wrong, the others get weftMismatch, and comm lives on. Then
 * all ranks have the parameters and buffers of rank 0. Blocks. It makes a communicator of its own from comm.
 * parameters, parameterCount  at least one, in the order of the forward pass, in host or device memory. Their memory
 *                             lives as long as the object; the structs are copied
 * buffers, bufferCount        values without a gradient, such as running means. NULL if bufferCount is 0
 * config                      settings, or NULL
 * Device memory holds its values already when the call is made: wait for streams before. Counts in the structs are
 * elements.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch (the ranks' models differ), weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound, to comm. */
WEFT_API weftResult_t weftTrainDdpCreate(weftTrainDdp_t* ddp, weftComm_t comm, const weftTrainTensor_t* parameters,
                                         size_t parameterCount, const weftTrainTensor_t* buffers, size_t bufferCount,
                                         const weftTrainDdpConfig_t* config);

/* Ends `ddp` and frees its gradients. If an iteration that synchronises is open, other ranks get weftRemoteError
 * instead of its results. On a device wait first for the streams that use its gradients. There it returns a failure of
 * the last iteration that no call has returned yet; ddp is freed all the same. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a child after fork),
 * weftRemoteError, weftTimeout, weftSystemError, weftUnhandledCudaError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpDestroy(weftTrainDdp_t ddp);

/* Stops the communication of `ddp` on all ranks: calls in progress return weftRemoteError on other ranks and an error
 * here: train.aborted. weftTrainDdpDestroy frees the object.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (a child after fork).
 * Thread-safe: also while another thread is inside a call on ddp. */
WEFT_API weftResult_t weftTrainDdpAbort(weftTrainDdp_t ddp);

/* Writes the error that has ended `ddp` to `result`, or weftSuccess; weftGetLastError(NULL) explains it then. Does not
 * wait. On a device errors occur after the calls that enqueued the work.
 * Errors: weftInvalidArgument (NULL, destroyed before), weftInvalidUsage (a child after fork).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpGetAsyncError(weftTrainDdp_t ddp, weftResult_t* result);

/* Begins an iteration of `ddp`: call it before the forward pass.
 * mode    equal on all ranks. With weftTrainSynchronize the iteration averages the gradients over all ranks. With
 *         weftTrainAccumulate no gradient is sent, and the caller adds up those of several iterations
 * stream  NULL, or a CUDA stream: the gradients and buffers were written there.
 * With config.broadcastBuffers and weftTrainSynchronize the buffers become those of rank 0. The second iteration that
 * synchronises rebuilds the buckets, which moves gradients that live there.
 * Errors: weftInvalidArgument, weftInvalidUsage (an iteration is open), weftMismatch (the modes differ, with
 * config.join), weftRemoteError, weftTimeout, weftSystemError, weftUnhandledCudaError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpBegin(weftTrainDdp_t ddp, weftTrainMode_t mode, weftStream_t stream);

/* Writes to `gradient` where the gradient of `ddp`'s parameter number `parameter` lies: host or device memory, its
 * count of elements, in its bucket or the caller's own. It is zeroed at first. It stays valid until a weftTrainDdpBegin
 * rebuilds the buckets: ask again after each.
 * Errors: weftInvalidArgument (no such parameter).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpGetGradient(weftTrainDdp_t ddp, int parameter, void** gradient);

/* Says that this rank has written the gradient of `ddp`'s parameter number `parameter` for this iteration. Once all
 * gradients of a bucket are written, its reduction begins, in the order of the buckets. On host memory the last bucket
 * may begin in weftTrainDdpFinish. Does not wait. A gradient in its bucket must not be touched from then on until
 * weftTrainDdpFinish. `stream` is NULL, or the CUDA stream that writes the gradient.
 * Errors: weftInvalidArgument (no such parameter), weftInvalidUsage (no iteration is open, reported twice); on a device
 * weftRemoteError, weftTimeout, weftSystemError, weftUnhandledCudaError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpGradientReady(weftTrainDdp_t ddp, int parameter, weftStream_t stream);
/* The same for several parameters, in the order of the array. Many small gradients are reported faster so.
 * parameters, count  their numbers in host memory, and how many elements the array has. Those before a wrong one are
 *                    reported */
WEFT_API weftResult_t weftTrainDdpGradientsReady(weftTrainDdp_t ddp, const int* parameters, size_t count,
                                                 weftStream_t stream);

/* Ends the iteration of `ddp`. If it synchronises, it blocks until each gradient is the average over all ranks. A
 * gradient that no rank has reported is zero in its bucket, and stays as it was in the caller's own memory.
 * Without config.findUnused a missing report is an error that names the parameter, and the iteration stays open: the
 * caller may report the gradient and call it again. `stream` is NULL. On a device it is the CUDA stream that reads the
 * gradients afterwards: the call does not wait for them, except for other ranks with config.findUnused.
 * Errors: weftInvalidUsage (no iteration is open, a gradient is missing, the hook failed), weftMismatch,
 * weftRemoteError, weftTimeout, weftSystemError, weftUnhandledCudaError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpFinish(weftTrainDdp_t ddp, weftStream_t stream);

/* Takes part in the other ranks' iterations with zeros, until every rank of `ddp` has called it: for ranks without
 * further inputs. Needs config.join. Blocks. At its end all ranks have the parameters and buffers of the highest rank
 * that was active last, and may begin new iterations. `stream` is NULL, or the CUDA stream that writes and reads them.
 * Errors: weftInvalidArgument, weftInvalidUsage (an iteration is open, config.join is 0, the hook failed), weftMismatch, weftRemoteError,
 * weftTimeout, weftSystemError, weftUnhandledCudaError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpJoin(weftTrainDdp_t ddp, weftStream_t stream);

/* Writes to `used` whether some rank reported the gradient of `ddp`'s parameter number `parameter` for the newest
 * finished iteration that synchronised: 1 or 0. Without config.findUnused and config.staticGraph it is 1.
 * Errors: weftInvalidArgument (no such parameter).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpGetUsed(weftTrainDdp_t ddp, int parameter, int* used);

/* Writes the index of the bucket of `ddp`'s parameter number `parameter` to `bucket`, from 0. Buckets are launched in
 * this order.
 * Errors: weftInvalidArgument (no such parameter).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpGetBucket(weftTrainDdp_t ddp, int parameter, int* bucket);

/* Sets all gradients of `ddp` to zero: those in buckets, and the caller's own. Not in an iteration that synchronises.
 * `stream` is NULL, or the CUDA stream that writes the gradients next; the call does not wait for it.
 * Errors: weftInvalidArgument, weftInvalidUsage (an iteration that synchronises is open), weftSystemError,
 * weftUnhandledCudaError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpZeroGradients(weftTrainDdp_t ddp, weftStream_t stream);

/* Writes how many parameters and buckets `ddp` has to `parameters` and `buckets`. The number of buckets changes when they
 * are rebuilt. Either pointer may be NULL.
 * Errors: weftInvalidArgument (destroyed before).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpGetCounts(weftTrainDdp_t ddp, int* parameters, int* buckets);

/* ---- Hooks of buckets ---- */

/* Averages the gradients of `bucket` over all ranks in their own datatype: the hook of a config without one.
 * context  is ignored, host memory or NULL
 * Errors: as weftAllReduce.
 * Thread-bound, to the hook that it is or that calls it. */
WEFT_API weftResult_t weftTrainHookAverage(const weftTrainBucket_t* bucket, void* context);

/* Averages float32 and float64 gradients of `bucket` as float16: half or a quarter of the bytes are sent. Numbers above
 * 65504 become infinite. 16-bit gradients are averaged in their own datatype. In host or device memory.
 * context  is ignored, host memory or NULL
 * Errors: as weftAllReduce.
 * Thread-bound, to the hook that it is or that calls it. */
WEFT_API weftResult_t weftTrainHookFloat16(const weftTrainBucket_t* bucket, void* context);

/* Averages float32 and float64 gradients of `bucket` as bfloat16, which has float32's range and 8 bits of precision.
 * In host or device memory.
 * context  is ignored, host memory or NULL
 * Errors: as weftAllReduce.
 * Thread-bound, to the hook that it is or that calls it. */
WEFT_API weftResult_t weftTrainHookBfloat16(const weftTrainBucket_t* bucket, void* context);

/* Writes to `scratch` the address of at least `bytes` bytes for a hook's work on `bucket`, in host or device memory as
 * the bucket. They belong to it until the buckets are rebuilt. Later calls for the same bucket get the same memory with
 * its contents; if they ask for more bytes, larger memory that begins with them. The old address is valid until the
 * hook returns. Built-in hooks do not use it.
 * Errors: weftInvalidArgument (NULL, no bucket of a hook), weftSystemError (out of memory).
 * Thread-bound, to the hook that calls it. */
WEFT_API weftResult_t weftTrainBucketScratch(const weftTrainBucket_t* bucket, size_t bytes, void** scratch);

/* ---- Compressing hooks ---- */

/* How a compressing hook sends gradients. All of them compute in float32.
 *
 * PowerSgd  matrices as products of two narrow ones (Vogels et al., NeurIPS 2019, by PyTorch's rules). A gradient is a
 *           matrix of weftTrainTensor_t.rows rows. Vectors and small matrices are averaged exactly
 *
 * TopK      the numbers of largest magnitude in each bucket
 *
 * OneBit    signs, and a scale for each rank (Tang et al., "1-bit Adam", ICML 2021)
 *
 * Int8      whole numbers from -127 to 127, and a scale for each block
 *
 * Float8    float8 numbers, and one scale for each message: its largest magnitude */
typedef WEFT_ENUM{weftTrainPowerSgd = 0, weftTrainTopK = 1, weftTrainOneBit = 2, weftTrainInt8 = 3,
                  weftTrainFloat8 = 4} weftTrainCompression_t;

/* Settings of a compressing hook, equal on all ranks. Start from WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER. The struct
 * grows at its end only. */
#define WEFT_TRAIN_COMPRESSOR_CONFIG_MAGIC 0x77656463u
typedef struct {
    size_t size;                   /* sizeof(weftTrainCompressorConfig_t) of the caller */
    unsigned magic;                /* WEFT_TRAIN_COMPRESSOR_CONFIG_MAGIC */
    unsigned version;              /* WEFT_VERSION_CODE of the caller */
    weftTrainCompression_t method; /* how gradients are sent */
    int64_t startIteration;        /* gradients are averaged exactly in so many iterations first; -1: 1000 for PowerSgd
                                      and OneBit, otherwise 0 */
    int errorFeedback; /* 1: what was not sent is added to the next gradients, so that nothing is lost in the sum */
    int rank;          /* PowerSgd: columns of the narrow matrices, 1 to 1024 */
    double leastRate;  /* PowerSgd: matrices are sent whole if fewer than (1 - 1 / leastRate) of the bytes are saved */
    int warmStart;     /* PowerSgd: 1: each iteration begins with the last one's result, otherwise at random */
    uint64_t seed;     /* PowerSgd: of random numbers */
    double density;    /* TopK: the share of numbers that are sent, above 0 and up to 1; at least one number is sent */
    size_t blockCount; /* Int8: elements of a block, 1 to 65536 */
    double momentum;   /* OneBit: the result is the gradients' running mean with this factor, from 0 to below 1 */
    weftDataType_t float8; /* Float8: weftFloat8e4m3, or weftFloat8e5m2 with more range and less precision */
    int layerScales; /* OneBit with momentum: 1: a parameter's momentum is sent as a multiple of its root mean square when
                        compression began, so that parameters share a scale (1-bit LAMB) */
} weftTrainCompressorConfig_t;
#define WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER                                                                       \
    {                                                                                                                  \
        sizeof(weftTrainCompressorConfig_t), WEFT_TRAIN_COMPRESSOR_CONFIG_MAGIC, WEFT_VERSION_CODE, weftTrainPowerSgd, \
            -1, 1, 1, 2, 1, 0, 0.01, 256, 0.9, weftFloat8e4m3, 0                                                       \
    }

/* Makes the hook of `config` and writes it to `compressor`. No communication. It serves one weftTrainDdp at a time,
 * from weftTrainDdpCreate to weftTrainDdpDestroy. The creation of another one, or of one with another model than its
 * state's, is the error train.compressor on all ranks. In its config, hook is weftTrainHookCompress and hookContext
 * the compressor, which outlives it.
 * config  settings; config.method chooses what the others mean. Sizes are in bytes and counts in elements
 * Errors: weftInvalidArgument.
 * Thread-safe. */
WEFT_API weftResult_t weftTrainCompressorCreate(weftTrainCompressor_t* compressor,
                                                const weftTrainCompressorConfig_t* config);

/* Frees `compressor`. No weftTrainDdp may use it any more. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (its hook runs in another thread, a child after
 * fork).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCompressorDestroy(weftTrainCompressor_t compressor);

/* Replaces the gradients of `bucket` by their approximate average over all ranks, with the same bits on all of them. For
 * host memory. Sums are made in float32; float64 gradients are rounded to float32.
 *
 * context  the weftTrainCompressor_t
 *
 * Without error feedback the error of an element is bounded for two methods. m is the largest magnitude of any rank in
 * its block (Int8) or bucket (Float8). Int8: m / 127. Float8: 1/8 (e4m3) or 1/4 (e5m2) of the mean magnitude of the
 * element over the ranks, and m / 2^17 more.
 * If a gradient is infinite or a NaN on some rank, some results are, too, and the state stays as it was.
 * A rank that has joined takes part with zeros, and still sends what its error feedback has kept.
 * Errors: weftInvalidArgument (not a compressor, not the whole bucket), weftInvalidUsage (state of another model), and
 * as weftAllReduce.
 * Thread-bound, to the hook that it is or that calls it. */
WEFT_API weftResult_t weftTrainHookCompress(const weftTrainBucket_t* bucket, void* context);

/* Writes to `compressed` whether the newest bucket of `compressor` was sent compressed: 1; 0: it was averaged exactly, or
 * there was none.
 * Errors: weftInvalidArgument.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCompressorGetCompressed(weftTrainCompressor_t compressor, int* compressed);

/* Writes the state of `compressor` to `state`: errors that were not sent, momentum, factors, and counts of iterations.
 * It belongs to this rank and to the parameters' numbers, not to buckets. Between iterations only.
 * state  host memory, or NULL to ask for its size
 * bytes  in: the bytes that state has. Out: the bytes of the state
 * Errors: weftInvalidArgument (destroyed before, too few bytes), weftInvalidUsage (its hook runs).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCompressorSave(weftTrainCompressor_t compressor, void* state, size_t* bytes);

/* Replaces the state of `compressor` by one of weftTrainCompressorSave, on all ranks: of the same method, model, rank
 * and number of ranks. Between iterations only. After an error the state is as before.
 * state, bytes  host memory, and its bytes
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (damaged, of another method, its hook runs).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCompressorLoad(weftTrainCompressor_t compressor, const void* state, size_t bytes);

/* ---- Sharded training ---- */

/* Registers a model in units and writes its object to `shard`. All ranks of `comm` call it, in one order with their
 * other calls. Units, names, counts, types and settings are equal on all ranks: an error names the first difference and
 * both ranks. Then each rank has its part of rank 0's values. Blocks. It makes communicators of its own from comm.
 * units, unitCount  at least one, in the order of the forward pass. Parameters are numbered from 0 through all units
 * config            settings, or NULL
 * The caller may free the values afterwards, host or device memory: counts in the structs are elements.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch (the ranks' models differ), weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound, to comm. */
WEFT_API weftResult_t weftTrainShardCreate(weftTrainShard_t* shard, weftComm_t comm, const weftTrainUnit_t* units,
                                           size_t unitCount, const weftTrainShardConfig_t* config);

/* Ends `shard` and frees its memory. If an iteration is open, other ranks get weftRemoteError instead of its results.
 * NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a child after fork).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardDestroy(weftTrainShard_t shard);

/* Stops the communication of `shard` on all ranks: calls in progress return weftRemoteError on other ranks and an error
 * here. weftTrainShardDestroy frees the object.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (a child after fork).
 * Thread-safe: also while another thread is inside a call on shard. */
WEFT_API weftResult_t weftTrainShardAbort(weftTrainShard_t shard);

/* Gathers the whole unit number `unit` of `shard` from all ranks' parts, for a forward or backward pass. Blocks until
 * it is there. Then the unit that came next in the last iteration is gathered ahead. All ranks gather the same units in
 * one order.
 * stream  NULL, or a CUDA stream that uses the unit: it waits for the unit. On a device the call does not block
 * Errors: weftInvalidArgument (no such unit), weftInvalidUsage (it is gathered already), weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardGather(weftTrainShard_t shard, int unit, weftStream_t stream);

/* Releases unit number `unit` of `shard`: its parameters must not be used any more. The next gather in the same
 * iteration is free if config.stage or unit.reshardRanks keep the unit. Else its memory serves others. Does not wait.
 * pass    equal on all ranks: weftTrainForward, or weftTrainBackward if no rank needs it again in this iteration
 * stream  NULL, or the CUDA stream that has used it.
 * Errors: weftInvalidArgument (no such unit), weftInvalidUsage (it is not gathered).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardRelease(weftTrainShard_t shard, int unit, weftTrainPass_t pass,
                                            weftStream_t stream);

/* Writes to `values` where parameter number `parameter` of `shard` lies as a whole: host or device memory, its count of
 * elements. It is valid until its unit is released.
 * Errors: weftInvalidArgument (no such parameter), weftInvalidUsage (its unit is released).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardGetParameter(weftTrainShard_t shard, int parameter, void** values);

/* Writes to `gradient` where the whole gradient of parameter number `parameter` of `shard` lies: host or device memory,
 * its count of elements, zeros at first unless config.overwriteGradients is 1. On a device the stream that gathered its
 * unit writes the zeros. Its unit is gathered. It is valid until weftTrainShardReduceScatter: ask again after that. Gradients of several batches may be
 * added up there: then nothing is sent for them.
 * Errors: weftInvalidArgument (no such parameter), weftInvalidUsage (its unit is released), weftRemoteError,
 * weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardGetGradient(weftTrainShard_t shard, int parameter, void** gradient);

/* Begins the reduction of the gradients of unit number `unit` of `shard` to the ranks' parts. Each result is added to
 * the one that the part has. Does not wait, except for older reductions if memory is short. All ranks reduce the same
 * units in one order. A rank without a gradient takes part with zeros.
 * mode    equal on all ranks. With weftTrainSynchronize the result is the sum over all ranks divided by
 *         config.divisor. weftTrainAccumulate is for several copies of the model (config.shardRanks): each copy keeps
 *         its own sum. The next reduction that synchronises adds that
 * stream  NULL, or the CUDA stream that has written the gradients
 * Errors: weftInvalidArgument (no such unit), weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardReduceScatter(weftTrainShard_t shard, int unit, weftTrainMode_t mode,
                                                  weftStream_t stream);

/* Ends an iteration of `shard`: blocks until all reductions are done. All units are released, and their gradients
 * reduced. Values may be changed then, by weftTrainShardGetPiece.
 * On a device the call does not block, except with config.shardsOnHost. It returns then when the gradients are in host
 * memory, and no copy reads the values any more.
 * stream  NULL, or the CUDA stream that changes them: it waits for the reductions
 * Errors: weftInvalidUsage (a unit is gathered, a gradient is not reduced), weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardFinish(weftTrainShard_t shard, weftStream_t stream);

/* Drops the reduced gradients of `shard`, so that the next reduction does not add to them. Host memory of gradients is
 * given back to the system until the next reduction, as with zero_grad(set_to_none=True) of PyTorch: for whole gradients
 * weftTrainShardFinish has done so. The addresses of pieces stay valid for the next reduction's results. Meanwhile they
 * must not be written, and zeros are read. Memory that stays allocated (a device's, with shardsOnHost, keepGradients)
 * keeps the old numbers until weftTrainShardFinish of the next iteration, which leaves zeros if the unit was not reduced.
 * Errors: weftInvalidUsage (an iteration is open).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardZeroGradients(weftTrainShard_t shard);

/* Writes to `piece` this rank's part of parameter number `parameter` of `shard`: host or device memory, elements. Change
 * the values between weftTrainShardFinish and the next weftTrainShardGather. With config.shardsOnHost the memory is
 * pinned host memory: the host changes it.
 * Errors: weftInvalidArgument (no such parameter, piece was not initialised).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardGetPiece(weftTrainShard_t shard, int parameter, weftTrainPiece_t* piece);

/* Writes to `stats` the elements that `shard` has moved and the bytes of its memory, on this rank.
 * Errors: weftInvalidArgument (stats was not initialised).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardGetStats(weftTrainShard_t shard, weftTrainShardStats_t* stats);

/* ---- Training with rare communication: Local SGD and DiLoCo ---- */

/* Ranks that train alone, and meet every so many steps. */
typedef struct weftTrainLocal* weftTrainLocal_t;

/* The ranks send their parameters, or the change of their parameters for an outer optimizer. */
typedef WEFT_ENUM{weftTrainAverage = 0, weftTrainDiloco = 1} weftTrainLocalMethod_t;

/* Settings of one object, equal on all ranks. Start from WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER, and set period. The
 * struct grows at its end only. */
#define WEFT_TRAIN_LOCAL_CONFIG_MAGIC 0x776c6f63u
typedef struct {
    size_t size;                   /* sizeof(weftTrainLocalConfig_t) of the caller */
    unsigned magic;                /* WEFT_TRAIN_LOCAL_CONFIG_MAGIC */
    unsigned version;              /* WEFT_VERSION_CODE of the caller */
    weftTrainLocalMethod_t method; /* weftTrainAverage: Local SGD. weftTrainDiloco: DiLoCo */
    uint64_t period;               /* steps between two reductions of one parameter, at least 1 */
    uint64_t warmup;               /* weftTrainAverage: the first step, from 0, that averages */
    int fragments;                 /* weftTrainDiloco: how many parts of the model are sent in turn; divides period */
    const int* fragmentOf; /* weftTrainDiloco: the fragment of each parameter; NULL: in order, of about one size */
    uint64_t delay;        /* weftTrainDiloco: a result is used so many steps later; below period / fragments */
    double learningRate;   /* weftTrainDiloco: of the outer SGD */
    double momentum;       /* weftTrainDiloco: Nesterov's, of the outer SGD */
    double mix;            /* weftTrainDiloco: the share of the local values in the new ones, 0 to 1 */
} weftTrainLocalConfig_t;
#define WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER                                                                          \
    {                                                                                                                \
        sizeof(weftTrainLocalConfig_t), WEFT_TRAIN_LOCAL_CONFIG_MAGIC, WEFT_VERSION_CODE, weftTrainAverage, 0, 0, 1, \
            NULL, 0, 0.7, 0.9, 0.0                                                                                   \
    }

/* DiLoCo's state of a parameter, for checkpoints: memory of the object, of the parameters' kind, valid as long as it
 * lives. Start from WEFT_TRAIN_LOCAL_STATE_INITIALIZER. The struct grows at its end only. */
typedef struct {
    size_t size;             /* sizeof(weftTrainLocalState_t) of the caller */
    void* anchor;            /* the global values: count elements. NULL with weftTrainAverage, as the next two */
    void* momentum;          /* of the outer SGD: count elements */
    void* reduced;           /* the mean change that config.delay holds back: count elements. NULL: there is none */
    size_t count;            /* elements */
    weftDataType_t datatype; /* float32, or float64 for float64 parameters */
} weftTrainLocalState_t;
#define WEFT_TRAIN_LOCAL_STATE_INITIALIZER \
    { sizeof(weftTrainLocalState_t), NULL, NULL, NULL, 0, weftFloat32 }

/* Registers the parameters and writes their object to `local`. All ranks of `comm` call it, in one order with their
 * other calls. Names, counts, types and settings are equal on all ranks: an error names the first difference and both
 * ranks. If one rank's arguments are wrong, the others get weftMismatch, and comm lives on. Then all ranks have the
 * values of rank 0. Blocks. It makes a communicator of its own from comm.
 *
 * parameters, parameterCount  at least one, count elements each. They lie in host memory, or on comm's device, alike on
 *                             all ranks, and live as long as the object. Device memory holds its values already.
 *                             Gradients in the structs are ignored
 *
 * config                      settings: at least its period
 *
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch (the ranks differ), weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound, to comm.
 * Sources: Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020; Douillard et al., "DiLoCo", 2023, and
 * "Streaming DiLoCo with overlapping communication", 2025. */
WEFT_API weftResult_t weftTrainLocalCreate(weftTrainLocal_t* local, weftComm_t comm,
                                           const weftTrainTensor_t* parameters, size_t parameterCount,
                                           const weftTrainLocalConfig_t* config);

/* Ends `local`. Waits for a reduction in progress, which the other ranks make after as many steps, and on a device for
 * the work of its steps. If a rank gives up, it calls weftTrainLocalAbort before. It returns a failure of that
 * reduction; local is freed all the same. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a child after fork),
 * weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainLocalDestroy(weftTrainLocal_t local);

/* Stops the communication of `local` on all ranks: calls in progress return weftRemoteError on other ranks and an error
 * here: train.aborted. weftTrainLocalDestroy frees the object.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (a child after fork).
 * Thread-safe: also while another thread is inside a call on local. */
WEFT_API weftResult_t weftTrainLocalAbort(weftTrainLocal_t local);

/* Ends a training step of `local`: call it after each step of the optimizer, on all ranks equally often. Writes to
 * `changed` whether parameters got values from other ranks: 1 or 0. NULL is accepted.
 *
 * stream  host memory: NULL. A device: the CUDA stream that has changed the parameters and uses them next
 *
 * weftTrainAverage: step number n, from 0, averages all parameters if n >= warmup and (n - warmup) % period == 0. It
 * blocks.
 * weftTrainDiloco: each period / fragments steps the reduction of the next fragment begins in the background. It gives
 * the mean of (anchor - parameter) over all ranks. After delay more steps this is the gradient of the outer SGD on the
 * anchor. The parameters become anchor + mix * (parameter - anchor). That blocks until the reduction is done.
 * On a device only the steps that use a result block: the verdict on it is the host's. The new values are work that the
 * stream waits for.
 * If a result is not finite, it is dropped on all ranks: train.local-values names the rank. Values, anchors and
 * momentum stay as they were, and the step counts.
 * Errors: weftInvalidUsage (a result is not finite), weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainLocalStep(weftTrainLocal_t local, int* changed, weftStream_t stream);

/* Writes to `mode` whether gradients are averaged in the next step of `local`, for weftTrainDdpBegin: post-local SGD
 * has weftTrainSynchronize before config.warmup. Otherwise it is weftTrainAccumulate: the ranks step alone.
 * Errors: weftInvalidArgument (NULL, destroyed before).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainLocalGetMode(weftTrainLocal_t local, weftTrainMode_t* mode);

/* Writes how often weftTrainLocalStep was called on `local` to `steps`, for a checkpoint.
 * Errors: weftInvalidArgument (NULL, destroyed before).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainLocalGetSteps(weftTrainLocal_t local, uint64_t* steps);

/* Continues `local` after `steps` steps. All ranks call it with one number; it blocks. Then write the saved state of
 * each parameter to the memory of weftTrainLocalGetState, and the saved parameters to their own.
 * Errors: weftMismatch (the ranks' numbers differ; nothing has changed), weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainLocalRestore(weftTrainLocal_t local, uint64_t steps);

/* Writes to `state` where the state of parameter number `parameter` of `local` lies: memory of the parameters' kind,
 * elements. It may be read and written until the next weftTrainLocalStep; on a device by work of that step's stream, or
 * finished work. Blocks until a reduction in progress is done.
 * Errors: weftInvalidArgument (no such parameter, state was not initialised), weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainLocalGetState(weftTrainLocal_t local, int parameter, weftTrainLocalState_t* state);

/* Copies one array of the state of a parameter to host memory. Does not communicate. Blocks until a reduction in
 * progress and the copy are done.
 *
 * local, parameter  the object, the number of the parameter
 *
 * state             0: the anchor, 1: the momentum, 2: reduced, as in weftTrainLocalState_t
 *
 * values            receives as many elements as the parameter has: host memory
 *
 * Errors: weftInvalidArgument (no such parameter or array), weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainLocalReadState(weftTrainLocal_t local, int parameter, int state, void* values);
/* Copies `values`, as many elements as the parameter number `parameter` has, from host memory to the array number
 * `state` of `local`. Errors and threads: as above. */
WEFT_API weftResult_t weftTrainLocalWriteState(weftTrainLocal_t local, int parameter, int state, const void* values);

/* ---- Checkpoints ---- */

/* Writes an object that saves and loads checkpoints to `checkpoint`. All ranks of `comm` call it, in one order with
 * their other calls. Blocks. It makes a communicator of its own from comm.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound, to comm. */
WEFT_API weftResult_t weftTrainCheckpointCreate(weftTrainCheckpoint_t* checkpoint, weftComm_t comm);

/* Ends `checkpoint`. It waits for a save in the background and returns that one's error; checkpoint is freed all the
 * same. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a child after fork), and
 * those of weftTrainCheckpointSave.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCheckpointDestroy(weftTrainCheckpoint_t checkpoint);

/* Stops the communication of `checkpoint` on all ranks: calls in progress return weftRemoteError on other ranks and an
 * error here. A save in progress leaves an incomplete checkpoint. weftTrainCheckpointDestroy frees the object.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (a child after fork).
 * Thread-safe: also while another thread is inside a call on checkpoint. */
WEFT_API weftResult_t weftTrainCheckpointAbort(weftTrainCheckpoint_t checkpoint);

/* Saves a checkpoint in `folder`, which is made if need be, and which all hosts see. All ranks of `checkpoint` call it
 * with one folder. Each rank writes a data file in the safetensors format. Rank 0 writes checkpoint.json last: a folder
 * with that file is a complete checkpoint. If a rank fails, all ranks get its error, and the folder has no such file.
 * After weftRemoteError or weftTimeout it may have one: rank 0 may have been done.
 * boxes, boxCount   this rank's boxes, elements. The boxes of all ranks cover each tensor. Boxes of several
 *                   ranks are equal or disjoint. Equal ones hold the same values and are written once.
 * items, itemCount  Small data, host memory, bytes
 * mode              of this rank. With weftTrainSaveBlocking it returns once the checkpoint is on the disk. With
 *                   weftTrainSaveBackground it returns once this rank's data is copied, and weftTrainCheckpointWait
 *                   returns the result. The memory may be changed or freed after either
 * A save in the background ends before the next save, load or export begins, which returns its error. Ranks wait for
 * the slowest one at most for the communicator's timeoutMs.
 * Errors: weftInvalidArgument, weftInvalidUsage (the folder has a complete checkpoint, or another save writes there),
 * weftMismatch (boxes that overlap, differ or leave gaps), weftSystemError (a full disk, no permission),
 * weftRemoteError, weftTimeout.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCheckpointSave(weftTrainCheckpoint_t checkpoint, const char* folder,
                                              const weftTrainBox_t* boxes, size_t boxCount,
                                              const weftTrainItem_t* items, size_t itemCount, weftTrainSave_t mode);

/* Writes to `done` whether no save of `checkpoint` is in progress on this rank: 1 or 0. Does not wait.
 * Errors: weftInvalidArgument.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCheckpointTest(weftTrainCheckpoint_t checkpoint, int* done);

/* Waits for the save of `checkpoint` in the background, if there is one, and returns its error once.
 * Errors: those of weftTrainCheckpointSave.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCheckpointWait(weftTrainCheckpoint_t checkpoint);

/* Reads boxes of the complete checkpoint in `folder`. All ranks of `checkpoint` call it, each with boxes of its own, also
 * none. Other numbers of ranks and other boxes than at the save are possible. Each rank reads what it needs, and
 * verifies its checksums. Blocks.
 * boxes, boxCount  boxes that receive the elements. Shapes and datatypes are those of the checkpoint.
 *                  Tensors that no box names are not read
 * If a name, shape or datatype differs, nothing is changed. After another error boxes may be changed in part.
 * Errors: weftInvalidArgument, weftInvalidUsage (incomplete, another model), weftSystemError (damaged, unreadable),
 * weftRemoteError, weftTimeout.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCheckpointLoad(weftTrainCheckpoint_t checkpoint, const char* folder,
                                              const weftTrainBox_t* boxes, size_t boxCount);

/* Writes to `ranks` how many ranks wrote the checkpoint that `checkpoint` loaded last; 0: none was loaded.
 * Errors: weftInvalidArgument.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCheckpointGetRanks(weftTrainCheckpoint_t checkpoint, int* ranks);

/* Reads the item `name` of the checkpoint that `checkpoint` loaded last. Local: no communication.
 * rank            whose item, of the ranks that wrote the checkpoint; -1: the item of all ranks
 * data, capacity  host memory that receives the item, and its bytes. NULL and 0: only `bytes` is written
 * bytes           receives the bytes of the item.
 * Errors: weftInvalidArgument (capacity is too small), weftInvalidUsage (no such item, nothing was loaded),
 * weftSystemError (damaged, unreadable).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCheckpointGetItem(weftTrainCheckpoint_t checkpoint, const char* name, int rank,
                                                 void* data, size_t capacity, size_t* bytes);

/* Writes whole tensors of the complete checkpoint in `folder` to one `file` in the safetensors format. All ranks of
 * `checkpoint` call it with the same arguments, and share the work. Blocks. An old file is replaced once the new one is
 * complete.
 * prefix  NULL, or the tensors are those whose names begin with it. It is left out in the file
 * Errors: as weftTrainCheckpointLoad and weftTrainCheckpointSave.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainCheckpointExport(weftTrainCheckpoint_t checkpoint, const char* folder,
                                                const char* prefix, const char* file);

/* Lists the tensors and items of the complete checkpoint in `folder`, each kind by name. Local: it needs no communicator.
 * It reads no tensors.
 * function  Is called in this thread for each one, with `context`.
 * context   Host memory or NULL.
 * ranks     Receives how many ranks wrote the checkpoint; or NULL.
 * Errors: weftInvalidArgument, weftInvalidUsage (no complete checkpoint), weftSystemError (a missing or damaged file).
 * Thread-safe. */
WEFT_API weftResult_t weftTrainCheckpointList(const char* folder, weftTrainStoredFunction_t function, void* context,
                                              int* ranks);

/* Writes to `box` this rank's part of parameter number `parameter` of `shard`, for a checkpoint or a copy in memory. It
 * has the parameter's name and shape, and the values; on a device set box->stream. Without a shape the elements are one
 * dimension. A part that is no box of rows is a range: isRange. Its pointers are valid as long as shard. For optimizer
 * states of the same parts, change name, data and datatype. Save and load between weftTrainShardFinish and the next
 * weftTrainShardGather.
 * Errors: weftInvalidArgument (no such parameter, box was not initialised).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardGetBox(weftTrainShard_t shard, int parameter, weftTrainBox_t* box);

/* ---- Copies in memory ---- */

/* Writes an object that keeps copies of states to `replica`. Local: no communication. It outlives communicators. After a
 * failure the processes that live on load their copies through a new communicator.
 * jump    the distance of two ranks that keep each other's state, at least 1. If it is the number of ranks on a host,
 *         copies lie on different hosts.
 * copies  How many ranks have each state, with its owner. With 2, any one host may be lost
 * Errors: weftInvalidArgument.
 * Thread-safe.
 * Source: the in-memory checkpoints of NVIDIA Resiliency Extension. */
WEFT_API weftResult_t weftTrainReplicaCreate(weftTrainReplica_t* replica, int jump, int copies);

/* Ends `replica` and frees its copies. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a child after fork).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainReplicaDestroy(weftTrainReplica_t replica);

/* Copies this rank's state into the memory of this rank and of the other ranks of its group. All ranks of `comm` call
 * it. Their number is a multiple of jump times copies. Once it has succeeded, older versions are freed. If it fails, the
 * older version can be loaded. Blocks. `replica` holds the copies.
 * version           Equal on all ranks, such as the step. Not smaller than those before; an equal one is saved again
 * boxes, boxCount   this rank's boxes, elements. Boxes of several ranks are equal or disjoint, and cover
 *                   each tensor. Ranks that own equal boxes pass equal elements.
 * items, itemCount  Small data, host memory, bytes.
 * Errors: weftInvalidArgument (also: the number of ranks does not fit), weftMismatch (another version or other
 * settings, wrong boxes), weftSystemError (out of memory), weftRemoteError, weftTimeout.
 * Thread-bound, to comm. */
WEFT_API weftResult_t weftTrainReplicaSave(weftTrainReplica_t replica, weftComm_t comm, uint64_t version,
                                           const weftTrainBox_t* boxes, size_t boxCount, const weftTrainItem_t* items,
                                           size_t itemCount);

/* Reads boxes of the newest version of which every part is in the memory of some rank. All ranks of `comm` call it, each
 * with boxes of its own, also none. New processes call it with a new `replica`. Other numbers of ranks and other boxes
 * than at the save are possible. Blocks. Save again soon: the new processes hold no copies yet.
 * boxes, boxCount  boxes that receive the elements. Shapes and datatypes are those of the save
 * version          receives the version, or NULL
 * Errors: weftInvalidArgument, weftInvalidUsage (copies are lost, another model), weftSystemError (out of memory),
 * weftRemoteError, weftTimeout.
 * Thread-bound, to comm. */
WEFT_API weftResult_t weftTrainReplicaLoad(weftTrainReplica_t replica, weftComm_t comm, const weftTrainBox_t* boxes,
                                           size_t boxCount, uint64_t* version);

/* Reads the item `name` of the state that `replica` loaded last. Local: no communication.
 * perRank         1 or 0: the item of this rank's number, or of all ranks.
 * data, capacity  Host memory that receives the item, and its bytes. NULL and 0: only `bytes` is written
 * bytes           receives the bytes of the item.
 * Errors: weftInvalidArgument (capacity is too small), weftInvalidUsage (no such item, nothing was loaded).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainReplicaGetItem(weftTrainReplica_t replica, const char* name, int perRank, void* data,
                                              size_t capacity, size_t* bytes);

/* ---- Stragglers ---- */

/* Compares the times of the ranks' own work in a training, and names slow ranks in the log. */
typedef struct weftTrainStragglers* weftTrainStragglers_t;

/* The reference time of a score: that of the fastest rank, or the best one of the rank itself so far. */
typedef WEFT_ENUM{weftTrainFastestRank = 0, weftTrainOwnBest = 1} weftTrainStragglerReference_t;

/* Settings of one object, equal on all ranks. Start from WEFT_TRAIN_STRAGGLERS_CONFIG_INITIALIZER. The struct grows at
 * its end only. */
#define WEFT_TRAIN_STRAGGLERS_CONFIG_MAGIC 0x77737472u
typedef struct {
    size_t size;            /* sizeof(weftTrainStragglersConfig_t) of the caller */
    unsigned magic;         /* WEFT_TRAIN_STRAGGLERS_CONFIG_MAGIC */
    unsigned version;       /* WEFT_VERSION_CODE of the caller */
    double intervalSeconds; /* from one report to the next, about */
    uint64_t intervalSteps; /* steps from one report to the next; 0: as many as take intervalSeconds */
    double threshold;       /* a rank with a score below it is a straggler, 0 to 1; 0: none is */
} weftTrainStragglersConfig_t;
#define WEFT_TRAIN_STRAGGLERS_CONFIG_INITIALIZER \
    { sizeof(weftTrainStragglersConfig_t), WEFT_TRAIN_STRAGGLERS_CONFIG_MAGIC, WEFT_VERSION_CODE, 60.0, 0, 0.75 }

/* Writes a new object to `stragglers`. All ranks of `comm` call it, with equal settings. If the arguments of a rank are
 * wrong, the others get weftMismatch, and comm lives on. Blocks. It makes a communicator of its own from comm.
 * config  settings; NULL: the initial ones
 * Errors: weftInvalidArgument, weftInvalidUsage (a group is open), weftMismatch (other settings), weftRemoteError,
 * weftTimeout.
 * Thread-bound, to comm. */
WEFT_API weftResult_t weftTrainStragglersCreate(weftTrainStragglers_t* stragglers, weftComm_t comm,
                                                const weftTrainStragglersConfig_t* config);

/* Ends `stragglers`. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a child after fork).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainStragglersDestroy(weftTrainStragglers_t stragglers);

/* Stops the communication of `stragglers` on all ranks: calls in progress return weftRemoteError on other ranks and an
 * error here. weftTrainStragglersDestroy frees the object.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (a child after fork).
 * Thread-safe: also while another thread is inside a call on stragglers. */
WEFT_API weftResult_t weftTrainStragglersAbort(weftTrainStragglers_t stragglers);

/* Counts a step of `stragglers`. All ranks call it after each training step. If a report is due, it is
 * weftTrainStragglersReport, otherwise it is local. The first report is due after 10 steps, unless config.intervalSteps
 * says otherwise.
 *
 * seconds   the time of this rank's own work in the step, without waits for other ranks; 0: it had none
 *
 * reported  receives whether there was a report, 1 or 0; NULL is accepted
 *
 * Errors: weftInvalidArgument (seconds is negative or not finite: the step counts without a time), weftRemoteError,
 * weftTimeout.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainStragglersStep(weftTrainStragglers_t stragglers, double seconds, int* reported);

/* Compares the steps of `stragglers` since the last report. All ranks call it. It gathers the median of each rank's
 * times, and rank 0 logs a WARN line for each rank with a score below config.threshold. Blocks.
 * Errors: weftRemoteError, weftTimeout.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainStragglersReport(weftTrainStragglers_t stragglers);

/* Reads the scores of the last report of `stragglers`: the reference time divided by the rank's median. Local: no
 * communication.
 *
 * scores  host memory that receives a score for each rank; 1: as fast as the reference; 0.5: twice the time; NaN: the
 *         rank had no time
 *
 * count   elements of scores: the number of ranks
 *
 * Errors: weftInvalidArgument, weftInvalidUsage (there was no report yet).
 * Thread-bound.
 * Source: the straggler detection of NVIDIA Resiliency Extension. */
WEFT_API weftResult_t weftTrainStragglersGetScores(weftTrainStragglers_t stragglers,
                                                   weftTrainStragglerReference_t reference, double* scores, int count);

/* ---- Optimizers, norms and loss scaling ---- */

/* Writes to `reduced` whether `ddp`'s gradients are averages: 1 from the end of an iteration that synchronises until
 * the next weftTrainDdpBegin; 0 within an iteration, and after one that accumulates.
 * Errors: weftInvalidArgument.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainDdpGetReduced(weftTrainDdp_t ddp, int* reduced);

/* Writes to `reduced` whether `shard` has reduced gradients for a step, 1 or 0. It is 1 after an iteration whose last
 * reductions synchronise, until the next one begins or weftTrainShardZeroGradients drops them.
 * Errors: weftInvalidArgument.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainShardGetReduced(weftTrainShard_t shard, int* reduced);

/* Makes an optimizer of this rank's parts and writes its object to `optimizer`. Does not communicate, except with
 * config.offloadFolder: then all ranks of each axis call it, and an error of one rank is an error on all of them.
 *
 * parts, partCount  an array of at least one element, as many on all ranks and in one order; copied. Host memory, or
 *                   memory of one device, which lives as long as the object. `copy` is written by the first step
 *
 * axes, axisCount   an array of at most 32 elements: communicators over which parts are sharded; or NULL and 0. LAMB and
 *                   LARS sum the norms of each part over its axes. They live as long as the object
 *
 * config            settings, or NULL
 *
 * LAMB: You et al., "Large batch optimization for deep learning", ICLR 2020. LARS: You et al., "Large batch training of
 * convolutional networks", 2017. OneBitLamb: Li et al., "1-bit LAMB", HiPC 2022; its parts are whole,
 * with axes 0. The other rules are those of torch.optim. Offload: Rajbhandari et al., "ZeRO-Infinity", 2021. The file
 * has no name: it needs no cleaning, and ranks may share a folder. Its whole space is reserved.
 * Errors: weftInvalidArgument, weftSystemError (out of memory; train.offload: no folder, a full disk, a limit of file
 * sizes), weftRemoteError (train.offload-peer: the offload of another rank of the axes).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainOptimizerCreate(weftTrainOptimizer_t* optimizer, const weftTrainPart_t* parts,
                                               size_t partCount, const weftComm_t* axes, size_t axisCount,
                                               const weftTrainOptimizerConfig_t* config);

/* Ends `optimizer` and frees its moments. On a device wait first for the streams of its steps. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a child after fork).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainOptimizerDestroy(weftTrainOptimizer_t optimizer);

/* Writes `gradient` as the place of the gradient of `optimizer`'s part number `part`: needed after buckets were rebuilt.
 * It is host or device memory, as the parts are, or NULL.
 * Errors: weftInvalidArgument (no such part).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainOptimizerSetGradient(weftTrainOptimizer_t optimizer, int part, void* gradient);

/* Makes one step of `optimizer`: changes all values and writes their copies. Parts without a gradient stay as they are.
 * Gradients are only read. With LAMB and LARS all ranks of each axis call it. Then it makes one all-reduce for each
 * axis, of two float64 numbers a part: a rank that gets an error before leaves the others in it until their timeout. If
 * the all-reduce fails, the values and the steps stay as they were. The other rules do not communicate.
 *
 * With config.offloadFolder all ranks of each axis call it, and each step ends by one all-reduce for each axis. If a
 * rank cannot read or write its file, all ranks of its axes get an error. Then parts of the model may have changed, and
 * all further steps are errors: make a new optimizer and load a checkpoint. A failure while LAMB or LARS compute norms
 * changes nothing, and the step may be repeated. Results have the bits of those without a folder.
 *
 * learningRate   not negative
 *
 * gradientScale  multiplies the gradients: 1 / loss scale, a clip coefficient, or 1
 *
 * skip           1: nothing is done, as after an infinite gradient; equal on all ranks
 *
 * stream         host memory: NULL. A device: a CUDA stream, on which the work is enqueued
 *
 * Errors: weftInvalidArgument, weftInvalidUsage (train.step: config.ddp or config.shard has no reduced gradients),
 * weftRemoteError (also train.offload-peer), weftTimeout, weftSystemError (also train.offload).
 * Thread-bound, also to the axes. */
WEFT_API weftResult_t weftTrainOptimizerStep(weftTrainOptimizer_t optimizer, double learningRate, double gradientScale,
                                             int skip, weftStream_t stream);

/* Writes to `states` how many arrays of moments `optimizer` has for each part: 0 to 3. Values that are offloaded are one
 * more, the last one.
 * Errors: weftInvalidArgument.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainOptimizerGetStateCount(weftTrainOptimizer_t optimizer, int* states);

/* Writes where one array of moments lies, for checkpoints: it may be read and written between steps.
 *
 * optimizer, part, state  the object, the number of the part, the number of the array
 *
 * name                    PyTorch's: "momentum_buffer" (SGD, LARS), or "exp_avg", "exp_avg_sq" (Adam, AdamW, LAMB);
 *                         OneBitLamb also has "exp_avg_sq_fresh"
 *                         "values" for values that are offloaded
 *
 * values                  host or device memory, as many elements as the part has; valid as long as the object. NULL: only
 *                         the name is wanted
 *
 * Errors: weftInvalidArgument (no such part or array), weftInvalidUsage (train.offload-state: it lies in a file).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainOptimizerGetState(weftTrainOptimizer_t optimizer, int part, int state, const char** name,
                                                 float** values);

/* Writes the ratios of a part of OneBitLamb. A checkpoint needs them, besides the arrays.
 *
 * optimizer, part  the object, the number of the part
 *
 * trust            the mean ratio of the part
 *
 * factor           the factor of its newest compressed step, or 0
 *
 * Errors: weftInvalidArgument (no such part, another algorithm).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainOptimizerGetTrust(weftTrainOptimizer_t optimizer, int part, double* trust,
                                                 double* factor);
/* Restores the ratios of a part of OneBitLamb, after its moments were restored.
 *
 * optimizer, part, trust, factor  as in weftTrainOptimizerGetTrust
 *
 * Errors and threads: as above. */
WEFT_API weftResult_t weftTrainOptimizerSetTrust(weftTrainOptimizer_t optimizer, int part, double trust, double factor);
/* Copies one array of moments, or of offloaded values, for checkpoints: also one that lies in a file. Does not
 * communicate. On a device it waits for the copy, but not for steps on the caller's streams.
 *
 * optimizer, part, state  the object, the number of the part, the number of the array
 *
 * values                  receives as many elements as the part has: host memory
 *
 * Errors: weftInvalidArgument (no such part or array), weftSystemError (train.offload).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainOptimizerReadState(weftTrainOptimizer_t optimizer, int part, int state, float* values);
/* Copies `values`, as many elements as the part number `part` has, from host memory to the array number `state` of
 * `optimizer`. After an error a part of the array may have changed. Offloaded values do not change part.copy.
 * Errors and threads: as above. */
WEFT_API weftResult_t weftTrainOptimizerWriteState(weftTrainOptimizer_t optimizer, int part, int state,
                                                   const float* values);

/* Writes to `steps` how many steps the part number `part` of `optimizer` has taken.
 * Errors: weftInvalidArgument (no such part).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainOptimizerGetSteps(weftTrainOptimizer_t optimizer, int part, uint64_t* steps);
/* Says that the part number `part` of `optimizer` has taken `steps` steps, after its moments were restored.
 * Errors and threads: as above. */
WEFT_API weftResult_t weftTrainOptimizerSetSteps(weftTrainOptimizer_t optimizer, int part, uint64_t steps);

/* Computes the norm of all gradients together, and writes it to `norm`. Sharded parts are summed over their axes, and
 * replicated ones count once. All ranks of each axis call it. It makes one all-reduce for each axis, and blocks.
 *
 * parts, partCount  an array of parts and its elements, as for an optimizer, without values. Parts without a gradient
 *                   count as zeros
 *
 * axes, axisCount   an array of at most 32 elements: communicators; or NULL and 0
 *
 * p                 1, 2, any positive number, or infinity: the largest element
 *
 * norm              the same on all ranks; NaN or infinite if a gradient is. Sums are float64
 *
 * stream            host memory: NULL. A device: a CUDA stream
 *
 * A rank that gets an argument error leaves the other ranks of the axes in the call until their timeout.
 * Errors: weftInvalidArgument, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound, to the axes. */
WEFT_API weftResult_t weftTrainGradientNorm(const weftTrainPart_t* parts, size_t partCount, const weftComm_t* axes,
                                            size_t axisCount, double p, double* norm, weftStream_t stream);

/* Multiplies all gradients in place by maxNorm / (norm + 1e-6), at most 1. Does not communicate. With an optimizer,
 * this coefficient as its gradientScale saves the pass over memory.
 *
 * parts, partCount   an array of parts and its elements, as for weftTrainGradientNorm
 *
 * norm               of weftTrainGradientNorm
 *
 * maxNorm            not negative
 *
 * errorIfNonfinite   1: if norm is infinite or NaN, it is an error and nothing changes; 0: as PyTorch, gradients become
 *                    zeros or NaN
 *
 * stream             host memory: NULL. A device: a CUDA stream
 *
 * Errors: weftInvalidArgument, weftInvalidUsage (train.norm).
 * Thread-safe. */
WEFT_API weftResult_t weftTrainClipGradients(const weftTrainPart_t* parts, size_t partCount, double norm,
                                             double maxNorm, int errorIfNonfinite, weftStream_t stream);

/* Makes a loss scale with the rule of torch.amp.GradScaler and writes its object to `scaler`. Does not communicate.
 *
 * axes, axisCount  an array of at most 32 elements: communicators over which an infinite gradient is looked for; or NULL
 *                  and 0. They live as long as the object
 *
 * config           settings, or NULL
 *
 * Errors: weftInvalidArgument.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainScalerCreate(weftTrainScaler_t* scaler, const weftComm_t* axes, size_t axisCount,
                                            const weftTrainScalerConfig_t* config);

/* Ends `scaler`. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a child after fork).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainScalerDestroy(weftTrainScaler_t scaler);

/* Looks for infinite and NaN gradients on all ranks, and divides gradients by the scale of `scaler`. All ranks of the
 * axes call it: a rank that gets an error leaves the others in it until their timeout. It makes one all-reduce of one
 * int32 number for each axis, which a NaN cannot disturb.
 *
 * parts, partCount  an array of parts and its elements, as for weftTrainGradientNorm; may be empty
 *
 * divide            1: gradients are divided in place, and none has float16, which cannot hold the quotients; 0: an
 *                   optimizer's gradientScale divides them
 *
 * found             1 if any gradient of any rank is infinite or NaN: then the step must be skipped. The same on all
 *                   ranks
 *
 * stream            host memory: NULL. A device: a CUDA stream
 *
 * Errors: weftInvalidArgument, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound, also to the axes. */
WEFT_API weftResult_t weftTrainScalerUnscale(weftTrainScaler_t scaler, const weftTrainPart_t* parts, size_t partCount,
                                             int divide, int* found, weftStream_t stream);

/* Ends a step of `scaler`: the scale falls if a weftTrainScalerUnscale since the last update has found something, and
 * grows after config.growthInterval steps without it. Does not communicate. If the scale would fall below
 * config.leastScale, it is an error on all ranks, and the scale is leastScale.
 * Errors: weftInvalidArgument, weftInvalidUsage (train.loss-scale).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainScalerUpdate(weftTrainScaler_t scaler);

/* Writes the state of `scaler`, also for checkpoints.
 * scale      multiplies the loss; or NULL
 * goodSteps  since it changed; or NULL
 * Errors: weftInvalidArgument.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainScalerGetState(weftTrainScaler_t scaler, double* scale, int* goodSteps);
/* Sets the state of `scaler`: `scale` is positive, and `goodSteps` not negative. Errors and threads: as above. */
WEFT_API weftResult_t weftTrainScalerSetState(weftTrainScaler_t scaler, double scale, int goodSteps);

/* ---- Statistics of batch norm, and samples ---- */

/* Computes each channel's mean and 1 / sqrt(variance + epsilon) over all ranks of `comm`, and follows the running
 * statistics. All ranks call it, also those without samples. It makes one all-gather of 2 x channels + 1 float64
 * numbers. All arrays lie in host memory, or on the device of `comm`.
 *
 * layer         the activations' shape
 *
 * x             batch x channels x inner elements, or NULL if there are none
 *
 * mean, invstd  channels elements each; the same on all ranks
 *
 * count         receives the elements of a channel over all ranks, in host or device memory; or NULL
 *
 * stream        host memory: NULL. A device: a CUDA stream, on which the work is enqueued
 *
 * On a device the call does not block, unless count lies in host memory. Without that count fewer than 2 elements a
 * channel are no error: mean and invstd are NaN, and the running statistics stay.
 * The output is (x - mean) * invstd * weight + bias.
 * A rank that gets an argument error leaves the others in the call until their timeout, here and in the backward pass.
 * Errors: weftInvalidArgument (also: fewer than 2 elements a channel), weftMismatch, weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound, to comm. */
WEFT_API weftResult_t weftTrainBatchNormForward(const weftTrainBatchNorm_t* layer, const void* x, float* mean,
                                                float* invstd, uint64_t* count, weftComm_t comm, weftStream_t stream);

/* Computes the sums of a batch-norm layer's backward pass over all ranks of `comm`. All ranks call it, also those
 * without samples. It makes one all-reduce of 2 x channels float64 numbers. All arrays lie in host memory, or on the
 * device of `comm`, where the call does not block.
 *
 * layer       the activations' shape
 *
 * x, dy       batch x channels x inner elements: the input, and the gradient of the output; or NULL
 *
 * mean        of weftTrainBatchNormForward
 *
 * ownSums     2 x channels elements: this rank's sums of dy, then of dy * (x - mean); or NULL. They
 *             are the gradients of the bias and, times invstd, of the weight
 *
 * sums        2 x channels elements: the same over all ranks
 *
 * stream      host memory: NULL. A device: a CUDA stream, on which the work is enqueued
 *
 * The gradient of the input is (dy - sums[c] / count - (x - mean) * invstd^2 * sums[channels + c] / count) * invstd *
 * weight.
 * Errors: weftInvalidArgument, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound, to comm. */
WEFT_API weftResult_t weftTrainBatchNormBackward(const weftTrainBatchNorm_t* layer, const void* x, const void* dy,
                                                 const float* mean, float* ownSums, float* sums, weftComm_t comm,
                                                 weftStream_t stream);

/* Writes to `count` how many of `samples` samples each of `ranks` ranks takes in an epoch. With dropLast 0 the last turn
 * is filled from the first samples again. With dropLast 1 it is left out. The rule is that of torch's DistributedSampler.
 * Errors: weftInvalidArgument.
 * Thread-safe. */
WEFT_API weftResult_t weftTrainSamplerCount(uint64_t samples, int ranks, int dropLast, uint64_t* count);
/* Writes the samples that `rank` takes to `indices`: host memory, as many elements as weftTrainSamplerCount says. They
 * are every ranks-th one from number rank on.
 *
 * samples, ranks, dropLast  as above
 *
 * order                     host memory, the samples in the order of the epoch, equal on all ranks; or NULL: in the
 *                           order of their numbers
 *
 * Errors and threads: as above. */
WEFT_API weftResult_t weftTrainSamplerIndices(uint64_t samples, int ranks, int rank, int dropLast,
                                              const uint64_t* order, uint64_t* indices);

/* Writes the numbers 0 to samples - 1 to `order`, host memory, shuffled: for weftTrainSamplerIndices. Equal seeds give
 * equal orders on all ranks and machines. A usual `seed` is a fixed number plus the number of the epoch. It is not the
 * order of torch.randperm.
 * Errors: weftInvalidArgument.
 * Thread-safe. */
WEFT_API weftResult_t weftTrainShuffle(uint64_t samples, uint64_t seed, uint64_t* order);

/* ---- Asynchronous training: a parameter server ---- */

/* Servers that keep the parameters, and workers that push gradients to them and pull parameters from them. */
typedef struct weftTrainServer* weftTrainServer_t;

/* A caller's update of a parameter, in place of SGD.
 *
 * parameter  its number
 *
 * values     the server's values: count elements of host memory, also if the server registered device memory; changed
 *            in place
 *
 * gradient   of one worker, or the mean of the accepted ones: count elements of host memory, read only
 *
 * context    config.updateContext
 *
 * It runs on the parameter's server in a thread of weftTrainServerServe, one call at a time. It returns weftSuccess or
 * an error, which ends the object on all ranks. It must not throw, nor call a weftTrainServer function. */
typedef weftResult_t (*weftTrainUpdate_t)(int parameter, void* values, const void* gradient, size_t count,
                                          weftDataType_t datatype, void* context);

/* Settings of one object, equal on all ranks. Start from WEFT_TRAIN_SERVER_CONFIG_INITIALIZER, and set learningRate or
 * update. The struct grows at its end only. */
#define WEFT_TRAIN_SERVER_CONFIG_MAGIC 0x77737276u
#define WEFT_TRAIN_ANY_STALENESS UINT64_MAX
typedef struct {
    size_t size;              /* sizeof(weftTrainServerConfig_t) of the caller */
    unsigned magic;           /* WEFT_TRAIN_SERVER_CONFIG_MAGIC */
    unsigned version;         /* WEFT_VERSION_CODE of the caller */
    int servers;              /* ranks 0 to servers - 1 are servers, the others are workers */
    int accepted;             /* the first so many gradients of a step count, later ones are dropped. 0: each counts */
    uint64_t staleness;       /* a worker may be so many steps ahead of the slowest one; WEFT_TRAIN_ANY_STALENESS */
    double learningRate;      /* of SGD */
    weftTrainUpdate_t update; /* NULL: SGD */
    void* updateContext;      /* is passed to update */
    int64_t timeoutMs;        /* a pull that waits for another worker for this long fails; 0: never */
} weftTrainServerConfig_t;
#define WEFT_TRAIN_SERVER_CONFIG_INITIALIZER                                                      \
    {                                                                                             \
        sizeof(weftTrainServerConfig_t), WEFT_TRAIN_SERVER_CONFIG_MAGIC, WEFT_VERSION_CODE, 1, 0, \
            WEFT_TRAIN_ANY_STALENESS, 0.0, NULL, NULL, 600000                                     \
    }

/* Counters of a parameter server on this rank. Start from WEFT_TRAIN_SERVER_STATS_INITIALIZER. The struct grows at its
 * end only. */
typedef struct {
    size_t size;           /* sizeof(weftTrainServerStats_t) of the caller */
    uint64_t steps;        /* a server: updates so far. A worker: those that its newest pull had seen, of any server */
    uint64_t applied;      /* a server: gradients that counted, each of one push. A worker: its pushes */
    uint64_t dropped;      /* a server: gradients that came too late */
    uint64_t slowestClock; /* a worker: the pushes of the slowest worker, as its newest pull has found them */
    uint64_t largestLead;  /* a server: the most steps that a worker that pulled was ahead of the slowest one */
} weftTrainServerStats_t;
#define WEFT_TRAIN_SERVER_STATS_INITIALIZER \
    { sizeof(weftTrainServerStats_t), 0, 0, 0, 0, 0 }

/* Registers the parameters and writes their object to `server`. All ranks of `comm` call it, in one order with their
 * other calls. Names, counts, types and settings are equal on all ranks: an error names the first difference and both
 * ranks. If one rank's arguments are wrong, the others get weftMismatch, and comm lives on. Then all ranks have the
 * values of rank 0. Blocks. It makes a communicator for each server and worker.
 * parameters, parameterCount  at least one; counts are elements. All of a rank lie in host memory, or on comm's device;
 *                             ranks may differ in that. The memory lives as long as the object. Device memory holds its
 *                             values already. A worker's parameters have gradients. A server ignores them
 * config                      settings
 * A parameter lives on the server that the hash of its name gives: weftTrainServerGetOwner. Servers keep it in host
 * memory, and messages go by pinned host memory: device memory is copied there and back.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch (the ranks differ), weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound, to comm.
 * Sources: Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014. Ho et al., "More
 * Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013. Chen et al., "Revisiting
 * Distributed Synchronous SGD", 2016. */
WEFT_API weftResult_t weftTrainServerCreate(weftTrainServer_t* server, weftComm_t comm,
                                            const weftTrainTensor_t* parameters, size_t parameterCount,
                                            const weftTrainServerConfig_t* config);

/* Ends `server`. Other ranks get an error if this worker has not called weftTrainServerFinish, or if this server still
 * has workers. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a child after fork).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainServerDestroy(weftTrainServer_t server);

/* Stops the communication of `server`: calls in progress return an error here: train.aborted. The servers, and by them
 * the workers, get errors. weftTrainServerDestroy frees the object.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (a child after fork).
 * Thread-safe: also while another thread is inside a call on server. */
WEFT_API weftResult_t weftTrainServerAbort(weftTrainServer_t server);

/* Serves the workers of `server` until all have called weftTrainServerFinish: for ranks below config.servers, once. The
 * memory of this server's own parameters has their newest values then, also on a device: no stream uses it meanwhile.
 * It has a thread for each worker. If a worker dies, gives up or is too slow, it returns an error after the other workers have got it, too.
 * Errors: weftInvalidUsage (a worker calls it, config.update failed), weftRemoteError, weftTimeout (names the slowest
 * worker), weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainServerServe(weftTrainServer_t server);

/* Sends this worker's gradients to the servers of `server`, and adds 1 to its clock. They may be changed when it
 * returns. Does not wait for their update. It waits for the servers to have taken those of its last push. On a device it
 * waits for the gradients, too.
 *
 * stream  host memory: NULL. A device: the CUDA stream that has written the gradients
 *
 * With config.accepted the gradients belong to the step of the last weftTrainServerPull, and each pull allows one push.
 * If a gradient is not finite, nothing is sent.
 * Errors: weftInvalidUsage (a server calls it, a gradient is not finite, the step has been pushed), weftRemoteError,
 * weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainServerPush(weftTrainServer_t server, weftStream_t stream);

/* Gets the parameters of `server` into this worker's memory. Blocks until the rules allow it. By config.staleness a
 * worker at clock c waits until the clock of the slowest worker is at least c - staleness. By config.accepted it waits
 * until the step that it has pushed has enough gradients. Workers that have finished do not count. If it waits longer
 * than config.timeoutMs, all ranks get an error that names the slowest worker.
 *
 * stream  host memory: NULL. A device: the CUDA stream that uses the parameters: it waits for their copies
 *
 * Errors: weftInvalidUsage (a server calls it), weftRemoteError (a worker or server has ended), weftTimeout,
 * weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainServerPull(weftTrainServer_t server, weftStream_t stream);

/* Says that this worker makes no more calls on `server`. Blocks until its gradients are applied. No worker waits for it
 * from then on.
 * Errors: weftInvalidUsage (a server calls it), weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftTrainServerFinish(weftTrainServer_t server);

/* Writes to `rank` the server that keeps parameter number `parameter` of `server`. Equal on all ranks.
 * Errors: weftInvalidArgument (no such parameter).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainServerGetOwner(weftTrainServer_t server, int parameter, int* rank);

/* Writes the counters of `server` on this rank to `stats`.
 * Errors: weftInvalidArgument (stats was not initialised).
 * Thread-bound. */
WEFT_API weftResult_t weftTrainServerGetStats(weftTrainServer_t server, weftTrainServerStats_t* stats);

#ifdef __cplusplus
}
#endif
#endif
