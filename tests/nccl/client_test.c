/* client_test.c threads|processes RANKS: a program linked to libnccl.so.2 that calls every function on host memory. */
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/nccl/check.h"

enum { elements = 1000, ranks_most = 4 };

typedef struct {
    ncclComm_t comm;
    int rank, ranks;
} Job;

/* ---- Collectives */

static void reductions(Job job) {
    int send[elements], receive[elements], i, product = 1, sum = 0;
    for (i = 1; i <= job.ranks; ++i) product *= i, sum += i;
    const struct {
        ncclRedOp_t op;
        int result;
    } rows[] = {{ncclSum, sum}, {ncclProd, product}, {ncclMax, job.ranks}, {ncclMin, 1}, {ncclAvg, sum / job.ranks}};
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; ++row) {
        for (i = 0; i < elements; ++i) send[i] = job.rank + 1, receive[i] = -1;
        OK(ncclAllReduce(send, receive, elements, ncclInt32, rows[row].op, job.comm, NULL));
        for (i = 0; i < elements && receive[i] == rows[row].result; ++i) {
        }
        CHECK(i == elements);
        OK(ncclReduce(send, receive, elements, ncclInt32, rows[row].op, job.ranks - 1, job.comm, NULL));
        CHECK(job.rank != job.ranks - 1 || receive[elements - 1] == rows[row].result);
        OK(pncclAllReduce(send, send, elements, ncclInt32, rows[row].op, job.comm, NULL));
        CHECK(send[0] == rows[row].result);
    }
}

static void copies(Job job) {
    int own[elements], parts[ranks_most * elements], all[ranks_most * elements], r, i;
    const int last = job.ranks - 1;
    for (i = 0; i < elements; ++i) own[i] = job.rank;
    for (i = 0; i < job.ranks * elements; ++i) parts[i] = 10 * job.rank + i / elements, all[i] = -1;

    OK(ncclAllGather(own, all, elements, ncclInt32, job.comm, NULL));
    for (r = 0; r < job.ranks; ++r) CHECK(all[r * elements] == r && all[(r + 1) * elements - 1] == r);
    OK(ncclAlltoAll(parts, all, elements, ncclInt32, job.comm, NULL));
    for (r = 0; r < job.ranks; ++r) CHECK(all[(r + 1) * elements - 1] == 10 * r + job.rank);
    OK(ncclGather(own, all, elements, ncclInt32, 0, job.comm, NULL));
    for (r = 0; r < job.ranks && job.rank == 0; ++r) CHECK(all[(r + 1) * elements - 1] == r);
    OK(ncclScatter(parts, own, elements, ncclInt32, last, job.comm, NULL));
    CHECK(own[elements - 1] == 10 * last + job.rank);
    OK(ncclReduceScatter(parts, own, elements, ncclInt32, ncclMax, job.comm, NULL));
    CHECK(own[0] == 10 * last + job.rank);
    OK(ncclBroadcast(parts, own, elements, ncclInt32, last, job.comm, NULL));
    CHECK(own[elements - 1] == 10 * last);
    own[0] = job.rank;
    OK(ncclBcast(own, elements, ncclInt32, 0, job.comm, NULL));
    CHECK(own[0] == 0);
}

/* The sum of ones tells each type from the others of its size. For integers the maximum tells signed from unsigned. */
static void types(Job job) {
    const struct {
        ncclDataType_t type;
        size_t bytes;
        uint64_t one, sums[3];
    } rows[] = {
        {ncclInt8, 1, 1, {2, 3, 4}},
        {ncclUint8, 1, 1, {2, 3, 4}},
        {ncclInt32, 4, 1, {2, 3, 4}},
        {ncclUint32, 4, 1, {2, 3, 4}},
        {ncclInt64, 8, 1, {2, 3, 4}},
        {ncclUint64, 8, 1, {2, 3, 4}},
        {ncclFloat16, 2, 0x3c00, {0x4000, 0x4200, 0x4400}},
        {ncclFloat32, 4, 0x3f800000, {0x40000000, 0x40400000, 0x40800000}},
        {ncclFloat64, 8, 0x3ff0000000000000, {0x4000000000000000, 0x4008000000000000, 0x4010000000000000}},
        {ncclBfloat16, 2, 0x3f80, {0x4000, 0x4040, 0x4080}},
        {ncclFloat8e4m3, 1, 0x38, {0x40, 0x44, 0x48}},
        {ncclFloat8e5m2, 1, 0x3c, {0x40, 0x42, 0x44}},
    };
    CHECK(sizeof rows / sizeof rows[0] == ncclNumTypes);
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; ++row) {
        uint64_t value = rows[row].one, result = 0;
        CHECK((size_t)rows[row].type == row);
        OK(ncclAllReduce(&value, &result, 1, rows[row].type, ncclSum, job.comm, NULL));
        CHECK(result == rows[row].sums[job.ranks - 2]);
        if (row > 5) continue;
        if (job.rank == 0) memset(&value, 0xff, rows[row].bytes);
        result = 0;
        OK(ncclAllReduce(&value, &result, 1, rows[row].type, ncclMax, job.comm, NULL));
        CHECK((result == 1) == (row % 2 == 0)); /* signed types have even numbers */
    }
}

static void messages(Job job) {
    const int right = (job.rank + 1) % job.ranks, left = (job.rank + job.ranks - 1) % job.ranks;
    float from = (float)job.rank, to = -1;
    OK(ncclGroupStart());
    OK(ncclSend(&from, 1, ncclFloat32, right, job.comm, NULL));
    OK(ncclRecv(&to, 1, ncclFloat32, left, job.comm, NULL));
    OK(ncclGroupEnd());
    CHECK(to == (float)left);
}

static void groups(Job job) {
    int one = 1, sum = 0, root = job.rank;
    ncclSimInfo_t info = {.size = sizeof info, .magic = 0x74685283, .version = 23000, .estimatedTime = -1};
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL));
    OK(ncclGroupEnd());
    OK(ncclBcast(&root, 1, ncclInt32, 1, job.comm, NULL));
    CHECK(sum == 0);
    OK(ncclGroupEnd());
    CHECK(sum == job.ranks && root == 1);
    FAILS(ncclGroupEnd(), ncclInvalidUsage, "group");

    sum = 0;
    OK(ncclGroupStart());
    OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL));
    FAILS(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "ncclGroupSimulateEnd");
    CHECK(sum == 0);
    FAILS(ncclGroupEnd(), ncclInvalidUsage, "group");

    /* The end returns the first failure of the group's calls. Weft carries the other calls out. */
    sum = 0, root = job.rank;
    OK(ncclGroupStart());
    OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL));
    OK(ncclGroupStart());
    FAILS(ncclAllReduce(&one, &sum, 1, (ncclDataType_t)99, ncclSum, job.comm, NULL), ncclInvalidArgument, "[");
    OK(ncclGroupEnd());
    OK(ncclBcast(&root, 1, ncclInt32, 1, job.comm, NULL));
    FAILS(ncclGroupEnd(), ncclInvalidArgument, "[argument.datatype]");
    CHECK(sum == job.ranks && root == 1);
    OK(ncclGroupStart());
    OK(ncclGroupEnd());

    info.magic = 1;
    FAILS(ncclGroupSimulateEnd(&info), ncclInvalidArgument, "simInfo");
}

static void user_reductions(Job job) {
    float scalar = (float)(job.rank + 1), value = 3, sum = 0;
    int bits = 6, expected = 0, r;
    ncclRedOp_t op = ncclSum;
    for (r = 1; r <= job.ranks; ++r) expected += 3 * r;
    /* Weft's bitwise and has this number. */
    FAILS(ncclAllReduce(&bits, &bits, 1, ncclInt32, ncclNumOps, job.comm, NULL), ncclInvalidArgument, "[");
    FAILS(ncclAllReduce(&bits, &bits, 1, ncclInt32, ncclMaxRedOp, job.comm, NULL), ncclInvalidArgument, "[");
    FAILS(ncclAllReduce(&bits, &bits, 1, ncclInt32, (ncclRedOp_t)-1, job.comm, NULL), ncclInvalidArgument, "[");
    OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, job.comm));
    CHECK(op >= ncclNumOps);
    OK(ncclAllReduce(&value, &sum, 1, ncclFloat32, op, job.comm, NULL));
    CHECK(sum == (float)expected);
    OK(ncclRedOpDestroy(op, job.comm));
    FAILS(ncclAllReduce(&value, &sum, 1, ncclFloat32, op, job.comm, NULL), ncclInvalidArgument, "[");
    FAILS(ncclRedOpDestroy(ncclSum, job.comm), ncclInvalidArgument, "[");
    FAILS(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarDevice, job.comm), ncclInvalidArgument, "[");
    FAILS(ncclRedOpCreatePreMulSum(NULL, &scalar, ncclFloat32, ncclScalarHostImmediate, job.comm), ncclInvalidArgument,
          "op");
}

/* ---- Memory */

static void memory(Job job) {
    void *memory = NULL, *handle = NULL;
    float* values;
    int i;
    OK(ncclMemAlloc(&memory, elements * sizeof *values)); /* host memory, for there is no device */
    CHECK(memory != NULL);
    if (!memory) return;
    values = memory;
    for (i = 0; i < elements; ++i) values[i] = 1;
    OK(ncclCommRegister(job.comm, memory, elements * sizeof *values, &handle));
    OK(ncclAllReduce(values, values, elements, ncclFloat32, ncclSum, job.comm, NULL));
    CHECK(values[elements - 1] == (float)job.ranks);
    OK(ncclCommDeregister(job.comm, handle));
    OK(ncclMemFree(memory));
    OK(ncclMemFree(NULL));
    FAILS(ncclMemFree(&i), ncclInvalidArgument, "[");
    FAILS(ncclMemAlloc(NULL, 8), ncclInvalidArgument, "ptr");
}

static void windows(Job job) {
    void* memory = NULL;
    ncclWindow_t window = NULL;
    int* values;
    OK(ncclMemAlloc(&memory, 4096));
    values = memory;
    FAILS(ncclCommWindowRegister(job.comm, memory, 4096, &window, 8), ncclInvalidUsage, "flags");
    OK(ncclCommWindowRegister(job.comm, memory, 4096, &window, 1));
#if LAYOUT >= 22900
    const int right = (job.rank + 1) % job.ranks, left = (job.rank + job.ranks - 1) % job.ranks;
    ncclWaitSignalDesc_t from_left = {.opCnt = 2, .peer = left, .sigIdx = 0, .ctx = 0};
    const int value = 100 + job.rank;
    void* own = NULL;
    OK(ncclWinGetUserPtr(job.comm, window, &own));
    CHECK(own == memory);
    OK(ncclPutSignal(&value, 1, ncclInt32, right, window, 8, 0, 0, 0, job.comm, NULL));
    OK(ncclSignal(right, 0, 0, 0, job.comm, NULL));
    OK(ncclWaitSignal(1, &from_left, job.comm, NULL));
    CHECK(values[2] == 100 + left);
    ncclWaitSignalDesc_t many[20] = {{.opCnt = 0, .peer = 0}};
    many[19] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = left};
    OK(ncclPutSignal(&job.rank, 1, ncclInt32, right, window, 16, 0, 0, 0, job.comm, NULL));
    OK(ncclWaitSignal(20, many, job.comm, NULL));
    CHECK(values[4] == left);
    FAILS(ncclWaitSignal(1, NULL, job.comm, NULL), ncclInvalidArgument, "[");
    /* Every field of a description is the caller's. */
    const ncclWaitSignalDesc_t wrong[] = {{.opCnt = -1, .peer = left},
                                          {.opCnt = 1, .peer = job.ranks},
                                          {.opCnt = 1, .peer = left, .sigIdx = 99},
                                          {.opCnt = 1, .peer = left, .ctx = 99}};
    for (int i = 0; i < 4; ++i) {
        ncclWaitSignalDesc_t two[] = {{.opCnt = 0, .peer = left}, wrong[i]};
        FAILS(ncclWaitSignal(2, two, job.comm, NULL), ncclInvalidArgument, "[");
    }
    FAILS(ncclSignal(right, 0, 0, 1, job.comm, NULL), ncclInvalidArgument, "flags");
#else
    CHECK(values != NULL);
#endif
    OK(ncclCommWindowDeregister(job.comm, window));
    OK(ncclMemFree(memory));
}

/* ---- Communicators */

static ncclUniqueId share_id(Job job) {
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    if (job.rank == 0) OK(ncclGetUniqueId(&id));
    OK(ncclBcast(&id, sizeof id, ncclUint8, 0, job.comm, NULL));
    return id;
}

static void sums_ranks(ncclComm_t comm) {
    int one = 1, sum = 0, count = -1;
    OK(ncclCommCount(comm, &count));
    OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, NULL));
    CHECK(sum == count);
}

static void children(Job job) {
    ncclComm_t child = NULL;
    int rank = -1, count = -1, excluded = 0;
    OK(ncclCommSplit(job.comm, job.rank % 2, -job.rank, &child, NULL));
    OK(ncclCommCount(child, &count));
    OK(ncclCommUserRank(child, &rank));
    CHECK(count == (job.ranks + 1 - job.rank % 2) / 2);
    CHECK(rank == count - 1 - job.rank / 2);
    sums_ranks(child);
    OK(ncclCommDestroy(child));

    child = job.comm;
    OK(ncclCommSplit(job.comm, job.rank == 0 ? NCCL_SPLIT_NOCOLOR : 7, 0, &child, NULL));
    CHECK((child == NULL) == (job.rank == 0));
    if (child) OK(ncclCommDestroy(child));

    FAILS(ncclCommShrink(job.comm, &excluded, 1, &child, NULL, 7), ncclInvalidArgument, "shrinkFlags");
    if (job.rank == 0) return;
    OK(ncclCommShrink(job.comm, &excluded, 1, &child, NULL, NCCL_SHRINK_DEFAULT));
    OK(ncclCommCount(child, &count));
    CHECK(count == job.ranks - 1);
    sums_ranks(child);
    OK(ncclCommDestroy(child));
}

static ncclConfig_t blank_config(void) {
    ncclConfig_t config;
    const int undefined = NCCL_CONFIG_UNDEF_INT;
    memset(&config, 0, sizeof config);
    for (size_t at = offsetof(ncclConfig_t, blocking); at < sizeof config; at += sizeof undefined)
        memcpy((char*)&config + at, &undefined, sizeof undefined);
    config.netName = config.commName = NULL;
    config.size = sizeof config;
    config.magic = NCCL_API_MAGIC;
    config.version = LAYOUT;
    return config;
}

static void configs(Job job) {
    ncclConfig_t config = blank_config();
    ncclComm_t child = NULL;
    /* A program compiled against NCCL 2.14 knows `blocking` only. Fields that its version lacks are not read, and no bytes
     * behind its size. */
    config.version = 21400, config.blocking = 1, config.commName = (const char*)16;
    OK(ncclCommSplit(job.comm, 0, job.rank, &child, &config));
    OK(ncclCommDestroy(child));
    config.size = 24, config.version = LAYOUT;
    OK(ncclCommSplit(job.comm, 0, job.rank, &child, &config));
    sums_ranks(child);
    OK(ncclCommDestroy(child));
    config = blank_config();
    config.commName = "inner", config.minCTAs = 4, config.netName = "Socket", config.splitShare = 1;
    OK(ncclCommSplit(job.comm, 0, job.rank, &child, &config));
    OK(ncclCommDestroy(child));
    /* Larger than this library's struct. */
    _Alignas(ncclConfig_t) char longer[sizeof config + 64];
    memset(longer, 1, sizeof longer);
    config.size = sizeof longer;
    memcpy(longer, &config, sizeof config);
    OK(ncclCommSplit(job.comm, 0, job.rank, &child, (ncclConfig_t*)longer));
    OK(ncclCommDestroy(child));

    config.size = sizeof config, config.magic = 1;
    FAILS(ncclCommSplit(job.comm, 0, job.rank, &child, &config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
    config.magic = NCCL_API_MAGIC, config.size = 8;
    FAILS(ncclCommSplit(job.comm, 0, job.rank, &child, &config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
    config.size = sizeof config, config.minCTAs = 9, config.maxCTAs = 8;
    FAILS(ncclCommSplit(job.comm, 0, job.rank, &child, &config), ncclInvalidArgument, "minCTAs is 9, more than");
    config.minCTAs = 0;
    FAILS(ncclCommSplit(job.comm, 0, job.rank, &child, &config), ncclInvalidArgument, "minCTAs is 0");
    config.minCTAs = config.maxCTAs = NCCL_CONFIG_UNDEF_INT, config.CTAPolicy = 4;
    FAILS(ncclCommSplit(job.comm, 0, job.rank, &child, &config), ncclInvalidArgument, "CTAPolicy is 4");
    config.CTAPolicy = 3, config.minCTAs = 200, config.maxCTAs = 300; /* more than Weft has */
    OK(ncclCommSplit(job.comm, 0, job.rank, &child, &config));
    sums_ranks(child);
    OK(ncclCommDestroy(child));
    config.blocking = 5;
    FAILS(ncclCommSplit(job.comm, 0, job.rank, &child, &config), ncclInvalidArgument, "blocking");
}

static ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress, asked = ncclSuccess;
    while (asked == ncclSuccess && state == ncclInProgress) {
        asked = ncclCommGetAsyncError(comm, &state);
        sched_yield();
    }
    CHECK(asked == ncclSuccess);
    return state;
}

static void without_blocking(Job job) {
    ncclConfig_t config = blank_config();
    ncclComm_t comm = NULL;
    int one = 1, sum = 0;
    ncclUniqueId id = share_id(job);
    config.blocking = 0;
    ncclResult_t made = ncclCommInitRankConfig(&comm, job.ranks, id, job.rank, &config);
    CHECK(made == ncclSuccess || made == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess);
    made = ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, NULL);
    CHECK(made == ncclSuccess || made == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess && sum == job.ranks);
    OK(ncclCommDestroy(comm));

    id = share_id(job);
    ncclUniqueId ids[2] = {id, id};
    OK(ncclCommInitRankScalable(&comm, job.ranks, job.rank, 2, ids, NULL));
    sums_ranks(comm);
    OK(ncclCommDestroy(comm));
    FAILS(ncclCommInitRankScalable(&comm, job.ranks, job.rank, 0, ids, NULL), ncclInvalidArgument, "commIds");
    FAILS(ncclCommInitRank(&comm, job.ranks, id, job.ranks), ncclInvalidArgument, "rank");
    FAILS(ncclCommInitRank(NULL, job.ranks, id, 0), ncclInvalidArgument, "comm");
}

/* ---- Errors */

static void refusals(Job job) {
    int value = 1;
    ncclComm_t none = NULL;
    FAILS(ncclAllReduce(NULL, &value, 1, ncclInt32, ncclSum, job.comm, NULL), ncclInvalidArgument, "sendbuff");
    FAILS(ncclAllReduce(&value, &value, 1, (ncclDataType_t)99, ncclSum, job.comm, NULL), ncclInvalidArgument,
          "datatype");
    FAILS(ncclBcast(&value, 1, ncclInt32, job.ranks, job.comm, NULL), ncclInvalidArgument, "root");
    FAILS(ncclSend(&value, 1, ncclInt32, -1, job.comm, NULL), ncclInvalidArgument, "peer");
    FAILS(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, none, NULL), ncclInvalidArgument, "[");
    FAILS(ncclCommCount(job.comm, NULL), ncclInvalidArgument, "count");
    CHECK(strstr(ncclGetLastError(job.comm), "count") != NULL);
    FAILS(ncclCommUserRank(job.comm, NULL), ncclInvalidArgument, "rank");
    FAILS(ncclCommGetAsyncError(job.comm, NULL), ncclInvalidArgument, "asyncError");
    FAILS(ncclGetVersion(NULL), ncclInvalidArgument, "ncclGetVersion");
    FAILS(ncclGetUniqueId(NULL), ncclInvalidArgument, "[");
    FAILS(ncclCommCuDevice(job.comm, &value), ncclInvalidUsage, "no device");
    /* A later error of Weft's replaces this library's. */
    FAILS(ncclCommCount(job.comm, NULL), ncclInvalidArgument, "weftCommCount");
    sums_ranks(job.comm); /* none of these was an error of the communicator */
}

static void mismatch(Job job) {
    int values[2] = {1, 1};
    ncclComm_t comm = NULL;
    ncclResult_t state = ncclSuccess;
    OK(ncclCommSplit(job.comm, 0, job.rank, &comm, NULL));
    FAILS(ncclAllReduce(values, values, job.rank == 0 ? 1 : 2, ncclInt32, ncclSum, comm, NULL), ncclInvalidUsage,
          "[mismatch.count]");
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclInvalidUsage);
    OK(ncclCommDestroy(comm));
}

static void abortion(Job job) {
    int value = 1;
    ncclComm_t comm = NULL;
    OK(ncclCommSplit(job.comm, 0, job.rank, &comm, NULL));
    sums_ranks(job.comm); /* no rank is inside the split any more */
    if (job.rank != 0) FAILS(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL), ncclRemoteError, "[");
    OK(ncclCommAbort(comm));
    FAILS(ncclCommAbort(comm), ncclInvalidArgument, "[");
    OK(ncclCommAbort(NULL));
    OK(ncclCommDestroy(NULL));
}

#ifndef NCCL_HEADER_OF_TOOLKIT
static void newer_calls(Job job) {
    int one = 1, sum = 0;
    uint64_t bytes = 1;
    ncclCollConfig_t config = {.size = sizeof config, .magic = NCCL_API_MAGIC, .version = WEFT_NCCL_2_32};
    config.forceAlgSelection = 1;
    OK(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, NULL));
    OK(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config));
    CHECK(sum == job.ranks);
    OK(ncclReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, 0, job.comm, NULL, &config));
    OK(ncclBroadcastConfig(&one, &sum, 1, ncclInt32, 0, job.comm, NULL, &config));
    CHECK(sum == 1);
    int all[ranks_most] = {0}, parts[ranks_most] = {1, 1, 1, 1};
    OK(ncclAllGatherConfig(&one, all, 1, ncclInt32, job.comm, NULL, &config));
    CHECK(all[job.ranks - 1] == 1);
    OK(ncclReduceScatterConfig(parts, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config));
    CHECK(sum == job.ranks);
    OK(ncclAlltoAllConfig(parts, all, 1, ncclInt32, job.comm, NULL, &config));
    OK(ncclGatherConfig(&one, all, 1, ncclInt32, 0, job.comm, NULL, &config));
    OK(ncclScatterConfig(parts, &sum, 1, ncclInt32, 0, job.comm, NULL, &config));
    CHECK(sum == 1);
    config.algSelection = "ring";
    OK(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config));
    config.algSelection = "no such algorithm";
    FAILS(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config), ncclInvalidArgument,
          "no such algorithm");
    /* A setting is for one call, also in a group. */
    config.algSelection = "rank_order", sum = 0;
    OK(ncclGroupStart());
    OK(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config));
    OK(ncclAllReduce(&one, all, 1, ncclInt32, ncclSum, job.comm, NULL));
    OK(ncclGroupEnd());
    CHECK(sum == job.ranks && all[0] == job.ranks);
    /* It is also over after a call that was refused: otherwise rank 0 would differ from the others here. */
    config.algSelection = "ring";
    if (job.rank == 0)
        FAILS(ncclAllReduceConfig(NULL, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config), ncclInvalidArgument,
              "sendbuff");
    sums_ranks(job.comm);
    config.algSelection = "no such algorithm", config.forceAlgSelection = 0;
    OK(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config));
    CHECK(sum == job.ranks);
    config.algSelection = NULL, config.minCTAs = 2, config.maxCTAs = 4;
    OK(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config));
    config.minCTAs = 5;
    FAILS(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config), ncclInvalidArgument,
          "minCTAs is 5, more than");
    config.minCTAs = config.maxCTAs = 0;
    config.launchCompletionEvent = (cudaEvent_t)&one;
    FAILS(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config), ncclInvalidUsage,
          "launchCompletionEvent");
    config.version = WEFT_NCCL_2_31; /* in which the field does not exist */
    OK(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config));
    config.magic = 0;
    FAILS(ncclAllReduceConfig(&one, &sum, 1, ncclInt32, ncclSum, job.comm, NULL, &config), ncclInvalidArgument,
          "NCCL_COLLCONFIG_INITIALIZER");

    OK(ncclCommMemStats(job.comm, ncclStatGpuMemTotal, &bytes));
    CHECK(bytes == 0);
    FAILS(ncclCommMemStats(job.comm, (ncclCommMemStat_t)9, &bytes), ncclInvalidArgument, "stat");
    FAILS(ncclCommMemStats(job.comm, ncclStatGpuMemTotal, NULL), ncclInvalidArgument, "value");

    ncclCommProperties_t properties;
    memset(&properties, 0x55, sizeof properties);
    properties.size = 56, properties.magic = NCCL_API_MAGIC, properties.version = WEFT_NCCL_2_30;
    OK(ncclCommQueryProperties(job.comm, &properties));
    CHECK(properties.rank == job.rank && properties.nRanks == job.ranks && !properties.deviceApiSupport);
    CHECK(properties.commHash == 0x5555555555555555); /* behind the end of the caller's struct */
    properties.size = sizeof properties, properties.version = WEFT_NCCL_2_32;
    OK(ncclCommQueryProperties(job.comm, &properties));
    CHECK(properties.commHash == 0 && !properties.ginSupport[63] && !properties.cftSupport[2]);
    properties.magic = 0;
    FAILS(ncclCommQueryProperties(job.comm, &properties), ncclInvalidArgument, "props");
    const ncclTeam_t world = ncclTeamWorld(job.comm), near = ncclTeamLsa(job.comm);
    CHECK(world.nRanks == job.ranks && world.rank == job.rank && world.stride == 1 && near.nRanks == 1);
    CHECK(ncclTeamRankToWorld(job.comm, world, 0) == 0 && ncclTeamRankToWorld(job.comm, near, 0) == job.rank);

    ncclEncryptionConfig_t encryption = {.size = sizeof encryption, .magic = NCCL_API_MAGIC, .mode = 0};
    OK(ncclSetEncryption(&encryption));
    encryption.mode = NCCL_ENCRYPTION_MODE_PSK;
    FAILS(ncclSetEncryption(&encryption), ncclInvalidUsage, "encrypt");
    ncclParamHandle_t handle;
    FAILS(ncclParamBind(&handle, "NCCL_DEBUG"), ncclInvalidUsage, "ncclParamBind");
    FAILS(ncclCommRevoke(job.comm, 0), ncclInvalidUsage, "ncclCommRevoke");
    FAILS(ncclCommSuspend(job.comm, 1), ncclInvalidUsage, "ncclCommSuspend");
    FAILS(ncclCommGrow(job.comm, 9, NULL, -1, NULL, NULL), ncclInvalidUsage, "ncclCommInitRank");
    FAILS(ncclDevCommCreate(job.comm, NULL, NULL), ncclInvalidUsage, "device API");
    ncclParamDumpAll();
    ncclResetDebugInit();
    ncclResetDebugInitInternal();
}
#endif

static void life(int rank, int ranks, ncclUniqueId id) {
    Job job = {NULL, rank, ranks};
    int number = -1, value = 1;
    OK(ncclCommInitRank(&job.comm, ranks, id, rank));
    if (!job.comm) return;
    OK(ncclCommCount(job.comm, &number));
    CHECK(number == ranks);
    OK(ncclCommUserRank(job.comm, &number));
    CHECK(number == rank);
    reductions(job);
    copies(job);
    types(job);
    messages(job);
    groups(job);
    user_reductions(job);
    memory(job);
    windows(job);
    children(job);
    configs(job);
    without_blocking(job);
    refusals(job);
    mismatch(job);
    abortion(job);
#ifndef NCCL_HEADER_OF_TOOLKIT
    newer_calls(job);
#endif
    OK(ncclCommFinalize(job.comm));
    FAILS(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, job.comm, NULL), ncclInvalidUsage, "[");
    OK(ncclCommDestroy(job.comm));
    FAILS(ncclCommDestroy(job.comm), ncclInvalidArgument, "[");
}

static const char* way;
static int ranks;

static ncclUniqueId threads_id;
static void* thread_body(void* rank) {
    life((int)(size_t)rank, ranks, threads_id);
    return NULL;
}
static void ranks_are_threads(void) {
    pthread_t threads[ranks_most];
    int rank;
    OK(ncclGetUniqueId(&threads_id));
    for (rank = 0; rank < ranks; ++rank)
        CHECK(pthread_create(&threads[rank], NULL, thread_body, (void*)(size_t)rank) == 0);
    for (rank = 0; rank < ranks; ++rank) pthread_join(threads[rank], NULL);
}

static void ranks_are_processes(void) {
    int pipes[2], rank, other, status;
    CHECK(pipe(pipes) == 0);
    for (rank = 0; rank < ranks; ++rank) {
        ncclUniqueId id;
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child != 0) continue;
        if (rank == 0) {
            OK(ncclGetUniqueId(&id));
            for (other = 1; other < ranks; ++other) CHECK(write(pipes[1], &id, sizeof id) == sizeof id);
        } else {
            CHECK(read(pipes[0], &id, sizeof id) == sizeof id);
        }
        life(rank, ranks, id);
        _exit(checks_failed != 0);
    }
    for (rank = 0; rank < ranks; ++rank) {
        status = -1;
        CHECK(wait(&status) > 0 && status == 0);
    }
    close(pipes[0]), close(pipes[1]);
}

static void one_thread_drives_all_ranks(void) {
    ncclComm_t comms[3];
    int sums[3] = {1, 1, 1}, rank;
    OK(ncclCommInitAll(comms, 3, NULL));
    OK(ncclGroupStart());
    for (rank = 0; rank < 3; ++rank)
        OK(ncclAllReduce(&sums[rank], &sums[rank], 1, ncclInt32, ncclSum, comms[rank], NULL));
    OK(ncclGroupEnd());
    for (rank = 0; rank < 3; ++rank) CHECK(sums[rank] == 3);
    for (rank = 0; rank < 3; ++rank) OK(ncclCommDestroy(comms[rank]));
    FAILS(ncclCommInitAll(comms, 0, NULL), ncclInvalidArgument, "ndev");
    FAILS(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument, "comm");
}

static void facts(void) {
    int version = 0, code;
    OK(ncclGetVersion(&version));
    CHECK(version == 23007);
    for (code = -1; code < 20; ++code) CHECK(ncclGetErrorString((ncclResult_t)code) != NULL);
    CHECK(strcmp(ncclGetErrorString((ncclResult_t)8), ncclGetErrorString((ncclResult_t)20)) != 0);
}

int main(int count, char** words) {
    if (count != 3 || (ranks = atoi(words[2])) < 2 || ranks > ranks_most) return 2;
    way = words[1];
    if (strcmp(way, "processes") == 0) {
        run_case("ranks that are processes make every call", ranks_are_processes);
    } else {
        run_case("ranks that are threads make every call", ranks_are_threads);
        run_case("one thread drives all ranks of ncclCommInitAll", one_thread_drives_all_ranks);
        run_case("version and texts need no communicator", facts);
    }
    return summary();
}
