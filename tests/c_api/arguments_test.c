/* arguments_test.c: every function of weft.h with right arguments and with each wrong one: its error, and the
 * communicator whose last error it becomes. One rank, so that nothing waits. */
#include "check.h"

#include <pthread.h>

static weftUniqueId new_id(void) {
    weftUniqueId id;
    CHECK_OK(weftGetUniqueId(&id));
    return id;
}

static weftComm_t alone(void) {
    weftComm_t comm = NULL;
    CHECK_OK(weftCommInitRank(&comm, 1, new_id(), 0));
    return comm;
}

static void versions_and_texts(void) {
    int version = 0, code;
    CHECK_OK(weftGetVersion(&version));
    CHECK(version == WEFT_VERSION_CODE);
    CHECK_ERROR_NAMES(weftGetVersion(NULL), "argument.null", "version");
    for (code = 0; code < weftNumResults; ++code) {
        const char* text = weftGetErrorString((weftResult_t)code);
        CHECK(text && text[0] && strcmp(text, weftGetErrorString(weftNumResults)) != 0);
    }
    CHECK_TEXT(weftGetErrorString((weftResult_t)4711), "unknown");
    CHECK_TEXT(weftGetErrorString((weftResult_t)-1), "unknown");
}

static void devices_and_log(void) {
    int count = -1;
    CHECK_OK(weftGetDeviceCount(&count));
    CHECK(count >= 0);
    CHECK_ERROR_NAMES(weftGetDeviceCount(NULL), "argument.null", "count");
    CHECK_OK(weftLogInfo("a line of a library on top of Weft"));
    CHECK_ERROR_NAMES(weftLogInfo(NULL), "argument.null", "text");
}

static void unique_ids(void) {
    weftUniqueId one = new_id(), other = new_id();
    CHECK(memcmp(&one, &other, sizeof one) != 0);
    CHECK_ERROR_NAMES(weftGetUniqueId(NULL), "argument.null", "id");
}

static void init_rank(void) {
    weftComm_t comm = (weftComm_t)&comm;
    int count = 0, rank = -1;
    CHECK_ERROR_NAMES(weftCommInitRank(NULL, 1, new_id(), 0), "argument.null", "comm");
    CHECK_ERROR_NAMES(weftCommInitRank(&comm, 0, new_id(), 0), "argument.rank", "nranks is 0");
    CHECK(comm == NULL); /* a failed call leaves nothing that could be taken for a communicator */
    CHECK_ERROR_NAMES(weftCommInitRank(&comm, -1, new_id(), 0), "argument.rank", "nranks is -1");
    CHECK_ERROR_NAMES(weftCommInitRank(&comm, 1 << 30, new_id(), 0), "argument.rank", "nranks is 1073741824");
    CHECK_ERROR_NAMES(weftCommInitRank(&comm, 2, new_id(), 2), "argument.rank", "rank is 2");
    CHECK_ERROR_NAMES(weftCommInitRank(&comm, 2, new_id(), -1), "argument.rank", "rank is -1");
    CHECK_OK(weftCommInitRank(&comm, 1, new_id(), 0));
    CHECK_OK(weftCommCount(comm, &count));
    CHECK_OK(weftCommUserRank(comm, &rank));
    CHECK(count == 1 && rank == 0);
    CHECK_OK(weftCommDestroy(comm));
    CHECK_OK(weftCommDestroy(NULL));
}

/* Every bit of every byte counts. */
static void garbled_ids(void) {
    const weftUniqueId good = new_id();
    weftUniqueId bad;
    weftComm_t comm = (weftComm_t)&comm;
    size_t byte;
    int bit;
    memset(&bad, 0, sizeof bad);
    CHECK_FAILS(weftCommInitRank(&comm, 1, bad, 0), weftInvalidArgument, "no unique id of Weft");
    CHECK(comm == NULL);
    memset(&bad, 0xff, sizeof bad);
    CHECK_FAILS(weftCommInitRank(&comm, 1, bad, 0), weftInvalidArgument, "no unique id of Weft");
    for (byte = 0; byte < sizeof good; ++byte)
        for (bit = 0; bit < 8; ++bit) {
            bad = good;
            bad.internal[byte] = (char)(bad.internal[byte] ^ (1 << bit));
            CHECK_FAILS(weftCommInitRank(&comm, 1, bad, 0), weftInvalidArgument, "unique id");
        }
    CHECK_OK(weftCommInitRank(&comm, 1, good, 0));
    CHECK_OK(weftCommDestroy(comm));
}

static void configs(void) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER, empty;
    weftComm_t comm = NULL;
    char name[16] = "layers";
    CHECK_OK(weftCommInitRankConfig(&comm, 1, new_id(), 0, NULL));
    CHECK_OK(weftCommDestroy(comm));
    config.blocking = 1;
    config.timeoutMs = 60000;
    config.initTimeoutMs = INT64_MAX;
    config.commName = name;
    config.algo = "^ring";
    CHECK_OK(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config));
    memset(name, 'x', sizeof name); /* copied */
    CHECK_OK(weftCommDestroy(comm));
    memset(&empty, 0, sizeof empty);
    CHECK_ERROR(weftCommInitRankConfig(&comm, 1, new_id(), 0, &empty), "argument.config");
    config.size = 8;
    CHECK_ERROR(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "argument.config");
    config.size = sizeof config;
    config.commName = NULL;
    config.blocking = 7;
    CHECK_ERROR_NAMES(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "argument.config", "blocking is 7");
    config.blocking = 1;
    config.algo = "foo";
    CHECK_ERROR(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "option.names");
}

/* A program compiled against an older header has a smaller struct, one against a newer header a larger. */
static void configs_of_other_versions(void) {
    static const size_t ends[] = {offsetof(weftConfig_t, deterministic),       offsetof(weftConfig_t, device),
                                  offsetof(weftConfig_t, maxBlocks),           offsetof(weftConfig_t, minBlocks),
                                  offsetof(weftConfig_t, launchOrderImplicit), offsetof(weftConfig_t, blockPolicy)};
    size_t i;
    struct {
        weftConfig_t known;
        char added[64];
    } newer;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftComm_t comm = NULL;
    memset(&newer, 0x5a, sizeof newer);
    newer.known = config;
    newer.known.size = sizeof newer;
    CHECK_OK(weftCommInitRankConfig(&comm, 1, new_id(), 0, &newer.known));
    CHECK_OK(weftCommDestroy(comm));
    config.size = offsetof(weftConfig_t, commName);
    config.algo = "rign"; /* beyond its end: not read */
    CHECK_OK(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config));
    CHECK_OK(weftCommDestroy(comm));
    for (i = 0; i < sizeof ends / sizeof *ends; ++i) {
        const weftConfig_t fresh = WEFT_CONFIG_INITIALIZER;
        memset(&config, 0x5a, sizeof config); /* refused in any of the later fields */
        memcpy(&config, &fresh, ends[i]);
        CHECK_ERROR(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "argument.config");
        config.size = ends[i];
        CHECK_OK(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config));
        CHECK_OK(weftCommDestroy(comm));
    }
}

static void algorithms(void) {
    static const char* const right[] = {"ring",
                                        "one_shot",
                                        "two_shot",
                                        "^ring",
                                        "ring,two_shot",
                                        " ring , one_shot ",
                                        "^ring,^one_shot",
                                        "",
                                        "ring;all_reduce@-1K:two_shot",
                                        "all_gather,barrier:ring;@1M-:^ring;"};
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftComm_t comm = NULL;
    char text[8000], many[1200];
    size_t i;
    for (i = 0; i < sizeof right / sizeof *right; ++i) {
        float sum = 3;
        config.algo = right[i];
        CHECK_OK(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config));
        CHECK_OK(weftAllReduce(&sum, &sum, 1, weftFloat32, weftSum, comm, NULL));
        CHECK(sum == 3);
        CHECK_OK(weftCommDestroy(comm));
    }
    config.algo = "two_shot";
    CHECK_OK(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config));
    CHECK_OK(weftCommExplain(comm, 100, weftFloat32, weftSum, text, sizeof text, NULL));
    CHECK_TEXT(text, "chosen: two_shot");
    CHECK_TEXT(text, "excluded by WEFT_ALGO");
    CHECK_OK(weftCommDestroy(comm));
    config.algo = "rign";
    CHECK_ERROR_NAMES(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "option.names", "rign");
    CHECK_TEXT(weftGetLastError(NULL), "one_shot, two_shot, ring");
    config.algo = "ring,^two_shto";
    CHECK_ERROR_NAMES(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "option.names", "two_shto");
    config.algo = "ring,^ring";
    CHECK_ERROR(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "option.names");
    config.algo = "all_reduce@1K:ring";
    CHECK_ERROR(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "algorithm.rule");
    config.algo = "all_redcue:ring";
    CHECK_ERROR(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "algorithm.rule");
    many[0] = 0;
    for (i = 0; i < 210; ++i) strcat(many, "ring,");
    config.algo = many;
    CHECK_ERROR(weftCommInitRankConfig(&comm, 1, new_id(), 0, &config), "option.value");
}

static void init_all(void) {
    weftComm_t comms[2] = {NULL, NULL};
    const int devices[2] = {0, -1};
    CHECK_ERROR_NAMES(weftCommInitAll(NULL, 2, NULL), "argument.null", "comms");
    CHECK_ERROR_NAMES(weftCommInitAll(comms, 2, devices), "argument.device", "devlist[1]");
    CHECK_ERROR_NAMES(weftCommInitAll(comms, 0, NULL), "argument.rank", "ndev");
    CHECK_ERROR_NAMES(weftCommInitAll(comms, -3, NULL), "argument.rank", "ndev");
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    CHECK_OK(weftCommDestroy(comms[0]));
    CHECK_OK(weftCommDestroy(comms[1]));
}

static void init_from_environment(void) {
    weftComm_t comm = NULL;
    int count = 0;
    CHECK_ERROR_NAMES(weftCommInitFromEnvironment(NULL, NULL), "argument.null", "comm");
    CHECK_OK(weftCommInitFromEnvironment(&comm, NULL));
    CHECK_OK(weftCommCount(comm, &count));
    CHECK(count == 1);
    CHECK_OK(weftCommDestroy(comm));
}

static void all_reduce(void) {
    weftComm_t comm = alone();
    float buffer[64] = {1, 2, 3}, out[8] = {0};
    CHECK_OK(weftAllReduce(buffer, out, 8, weftFloat32, weftSum, comm, NULL));
    CHECK(out[0] == 1 && out[2] == 3);
    CHECK_OK(weftAllReduce(buffer, buffer, 8, weftFloat32, weftAvg, comm, NULL));
    CHECK_OK(weftAllReduce(NULL, NULL, 0, weftFloat32, weftSum, comm, NULL));
    CHECK_OK(
        weftAllReduce(buffer, buffer + 32, 32, weftFloat32, weftSum, comm, NULL)); /* touching is not overlapping */
    CHECK_ERROR_NAMES(weftAllReduce(NULL, out, 8, weftFloat32, weftSum, comm, NULL), "argument.null", "sendbuff");
    CHECK_ERROR_NAMES(weftAllReduce(buffer, NULL, 8, weftFloat32, weftSum, comm, NULL), "argument.null", "recvbuff");
    CHECK_ERROR(weftAllReduce(buffer, buffer + 31, 32, weftFloat32, weftSum, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftAllReduce(buffer + 1, buffer, 32, weftFloat32, weftSum, comm, NULL), "argument.overlap");
    CHECK_ERROR_NAMES(weftAllReduce(buffer, out, SIZE_MAX, weftFloat64, weftSum, comm, NULL), "argument.count",
                      "count");
    CHECK_ERROR_NAMES(weftAllReduce(buffer, out, 1, weftNumTypes, weftSum, comm, NULL), "argument.datatype",
                      "datatype");
    CHECK_ERROR_NAMES(weftAllReduce(buffer, out, 1, (weftDataType_t)-1, weftSum, comm, NULL), "argument.datatype",
                      "datatype");
    CHECK_ERROR_NAMES(weftAllReduce(buffer, out, 1, weftFloat32, weftNumOps, comm, NULL), "argument.reduction", "op");
    CHECK_ERROR_NAMES(weftAllReduce(buffer, out, 1, weftFloat32, (weftRedOp_t)-1, comm, NULL), "argument.reduction",
                      "op");
    CHECK_ERROR_NAMES(weftAllReduce(buffer, out, 1, weftFloat32, weftMaxRedOp, comm, NULL), "argument.reduction", "op");
    CHECK_ERROR(weftAllReduce(buffer, out, 1, weftFloat32, weftSum, comm, (weftStream_t)buffer), "argument.stream");
    CHECK_ERROR(weftAllReduce(buffer, out, 1, weftFloat32, weftSum, NULL, NULL), "argument.communicator");
    CHECK_ERROR(weftAllReduce(buffer, out, 1, weftFloat32, weftSum, (weftComm_t)buffer, NULL), "argument.communicator");
    /* A wrong argument is no error of the communicator. */
    CHECK_OK(weftAllReduce(buffer, out, 8, weftFloat32, weftSum, comm, NULL));
    CHECK_OK(weftCommDestroy(comm));
}

static void larger(const void* left, const void* right, void* result, size_t count, weftDataType_t type,
                   void* context) {
    const int32_t *a = left, *b = right;
    size_t i;
    if (type != weftInt32) return;
    ++*(int*)context;
    for (i = 0; i < count; ++i) ((int32_t*)result)[i] = a[i] > b[i] ? a[i] : b[i];
}

static weftComm_t called_inside[2]; /* of one group */
static void calls_weft(const void* left, const void* right, void* result, size_t count, weftDataType_t type,
                       void* context) {
    int32_t value = 1;
    int i;
    for (i = 0; i < 2; ++i) {
        CHECK_ERROR(weftAllReduce(&value, &value, 1, weftInt32, weftSum, called_inside[i], NULL), "usage.in-function");
        CHECK_ERROR(weftCommAbort(called_inside[i]), "usage.in-function");
        CHECK_ERROR(weftCommDestroy(called_inside[i]), "usage.in-function");
    }
    larger(left, right, result, count, type, context);
}

static void reduction_that_calls_weft(void) {
    weftComm_t both[2];
    weftRedOp_t ops[2];
    int32_t values[2] = {-5, 9}, results[2];
    weftHostStream_t stream;
    int calls, rank, streamed;
    CHECK_OK(weftStreamCreate(&stream));
    CHECK_OK(weftCommInitAll(both, 2, NULL));
    memcpy(called_inside, both, sizeof both);
    CHECK_OK(weftRedOpCreate(&ops[0], larger, &calls, weftInt32, 1, both[0]));
    CHECK_OK(weftRedOpCreate(&ops[1], calls_weft, &calls, weftInt32, 1, both[1]));
    /* In the calling thread, and in the stream's. */
    for (streamed = 0; streamed < 2; ++streamed) {
        calls = results[0] = results[1] = 0;
        CHECK_OK(weftGroupStart());
        for (rank = 0; rank < 2; ++rank)
            CHECK_OK(weftReduceScatter(values, &results[rank], 1, weftInt32, ops[rank], both[rank],
                                       streamed ? (weftStream_t)stream : NULL));
        CHECK_OK(weftGroupEnd());
        CHECK_OK(weftStreamWait(stream, UINT64_MAX, -1));
        CHECK(results[0] == -5 && results[1] == 9 && calls > 1);
    }
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommDestroy(both[rank]));
    CHECK_OK(weftStreamDestroy(stream));
}

static void users_reductions(void) {
    weftComm_t comm = alone(), both[2];
    weftRedOp_t op = weftSum, ops[2];
    int32_t value = 4, out = 0, values[2] = {-5, 9}, results[2] = {0, 0};
    float other = 1;
    int calls = 0, rank;
    CHECK_ERROR_NAMES(weftRedOpCreate(NULL, larger, NULL, weftInt32, 1, comm), "argument.null", "op");
    CHECK_ERROR_NAMES(weftRedOpCreate(&op, NULL, NULL, weftInt32, 1, comm), "argument.null", "function");
    CHECK_ERROR_NAMES(weftRedOpCreate(&op, larger, NULL, weftNumTypes, 1, comm), "argument.datatype", "datatype");
    CHECK_ERROR_NAMES(weftRedOpCreate(&op, larger, NULL, weftInt32, 2, comm), "argument.value", "commutative");
    CHECK_ERROR(weftRedOpCreate(&op, larger, NULL, weftInt32, 1, NULL), "argument.communicator");
    CHECK(op == weftSum);
    CHECK_OK(weftRedOpCreate(&op, larger, &calls, weftInt32, 1, comm));
    CHECK(op >= weftNumOps);
    CHECK_OK(weftAllReduce(&value, &out, 1, weftInt32, op, comm, NULL));
    CHECK(out == 4 && calls == 0); /* one rank: nothing to combine */
    CHECK_ERROR(weftAllReduce(&other, &other, 1, weftFloat32, op, comm, NULL), "argument.reduction");
    CHECK_OK(weftRedOpDestroy(op, comm));
    CHECK_ERROR_NAMES(weftAllReduce(&value, &out, 1, weftInt32, op, comm, NULL), "argument.reduction", "op");
    CHECK_OK(weftCommDestroy(comm));

    CHECK_OK(weftCommInitAll(both, 2, NULL));
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 2; ++rank) {
        CHECK_OK(weftRedOpCreate(&ops[rank], larger, &calls, weftInt32, 1, both[rank]));
        CHECK_OK(weftAllReduce(&values[rank], &results[rank], 1, weftInt32, ops[rank], both[rank], NULL));
        CHECK_ERROR(weftRedOpDestroy(ops[rank], both[rank]), "group.holds-calls");
    }
    CHECK_OK(weftGroupEnd());
    CHECK(results[0] == 9 && results[1] == 9 && calls > 0);
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommDestroy(both[rank]));
}

static void bits(void) {
    weftComm_t both[2];
    uint8_t values[2] = {0xcc, 0xaa}, results[2];
    uint64_t wide = 1;
    float other = 1;
    int rank, op;
    const uint8_t expected[] = {0x88, 0xee, 0x66};
    CHECK_OK(weftCommInitAll(both, 2, NULL));
    for (op = weftBand; op <= weftBxor; ++op) {
        CHECK_OK(weftGroupStart());
        for (rank = 0; rank < 2; ++rank)
            CHECK_OK(weftAllReduce(&values[rank], &results[rank], 1, weftUint8, (weftRedOp_t)op, both[rank], NULL));
        CHECK_OK(weftGroupEnd());
        CHECK(results[0] == expected[op - weftBand] && results[1] == expected[op - weftBand]);
        CHECK_ERROR(weftAllReduce(&other, &other, 1, weftFloat32, (weftRedOp_t)op, both[0], NULL),
                    "argument.reduction");
        CHECK_ERROR(weftReduceScatter(&wide, &wide, 1, weftFloat8e5m2, (weftRedOp_t)op, both[0], NULL),
                    "argument.reduction");
    }
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommDestroy(both[rank]));
}

static void pre_multiplied_sums(void) {
    weftComm_t comm = alone(), other = alone();
    weftRedOp_t op = weftSum, second = weftSum;
    float factor = 2.5f, value = 4, out = 0;
    double wide = 0;
    CHECK_OK(weftRedOpCreatePreMulSum(&op, &factor, weftFloat32, weftScalarHostImmediate, comm));
    CHECK_OK(weftRedOpCreatePreMulSum(&second, &factor, weftFloat32, weftScalarHostImmediate, comm));
    CHECK(op >= weftNumOps && second >= weftNumOps && op != second);
    factor = 100; /* read at once */
    CHECK_OK(weftAllReduce(&value, &out, 1, weftFloat32, op, comm, NULL));
    CHECK(out == 10);
    CHECK_ERROR(weftAllReduce(&wide, &wide, 1, weftFloat64, op, comm, NULL), "argument.reduction");
    CHECK_ERROR_NAMES(weftAllReduce(&value, &out, 1, weftFloat32, op, other, NULL), "argument.reduction", "op");
    CHECK_OK(weftRedOpDestroy(op, comm));
    CHECK_ERROR_NAMES(weftAllReduce(&value, &out, 1, weftFloat32, op, comm, NULL), "argument.reduction", "op");
    CHECK_OK(weftAllReduce(&value, &out, 1, weftFloat32, second, comm, NULL));
    CHECK_ERROR(weftRedOpDestroy(op, comm), "argument.reduction");
    CHECK_ERROR(weftRedOpDestroy(weftSum, comm), "argument.reduction");
    CHECK_ERROR(weftRedOpDestroy(second, NULL), "argument.communicator");
    CHECK_ERROR_NAMES(weftRedOpCreatePreMulSum(NULL, &factor, weftFloat32, weftScalarHostImmediate, comm),
                      "argument.null", "op");
    CHECK_ERROR_NAMES(weftRedOpCreatePreMulSum(&op, NULL, weftFloat32, weftScalarHostImmediate, comm), "argument.null",
                      "scalar");
    CHECK_ERROR_NAMES(weftRedOpCreatePreMulSum(&op, &factor, weftNumTypes, weftScalarHostImmediate, comm),
                      "argument.datatype", "datatype");
    CHECK_ERROR(weftRedOpCreatePreMulSum(&op, &factor, weftFloat32, weftScalarDevice, comm), "argument.scalar");
    CHECK_ERROR_NAMES(weftRedOpCreatePreMulSum(&op, &factor, weftFloat32, 2, comm), "argument.value", "residence");
    CHECK_ERROR(weftRedOpCreatePreMulSum(&op, &factor, weftFloat32, weftScalarHostImmediate, NULL),
                "argument.communicator");
    CHECK_OK(weftCommDestroy(comm));
    CHECK_OK(weftCommDestroy(other));
}

static void observers(void) {
    weftComm_t comm = alone();
    weftResult_t error = weftInternalError;
    int number;
    CHECK_OK(weftCommGetAsyncError(comm, &error));
    CHECK(error == weftSuccess);
    CHECK_ERROR_NAMES(weftCommGetAsyncError(comm, NULL), "argument.null", "asyncError");
    CHECK_ERROR(weftCommGetAsyncError(NULL, &error), "argument.communicator");
    CHECK_ERROR_NAMES(weftCommCount(comm, NULL), "argument.null", "count");
    CHECK_ERROR(weftCommCount(NULL, &number), "argument.communicator");
    CHECK_ERROR_NAMES(weftCommUserRank(comm, NULL), "argument.null", "rank");
    CHECK_ERROR(weftCommUserRank(NULL, &number), "argument.communicator");
    CHECK_ERROR_NAMES(weftCommCuDevice(comm, NULL), "argument.null", "device");
    CHECK_ERROR(weftCommCuDevice(comm, &number), "gpu.unavailable");
    CHECK_ERROR(weftCommCuDevice(NULL, &number), "argument.communicator");
    CHECK_OK(weftCommDestroy(comm));
}

static void after_the_end(void) {
    weftComm_t gone = alone(), aborted = alone();
    float value = 1;
    weftResult_t error;
    weftRedOp_t op;
    uint64_t bytes;
    int number;
    void* handle;
    char text[100];
    CHECK_OK(weftCommDestroy(gone));
    CHECK_ERROR(weftCommDestroy(gone), "argument.communicator");
    CHECK_ERROR(weftCommAbort(gone), "argument.communicator");
    CHECK_ERROR(weftAllReduce(&value, &value, 1, weftFloat32, weftSum, gone, NULL), "argument.communicator");
    CHECK_ERROR(weftCommCount(gone, &number), "argument.communicator");
    CHECK_ERROR(weftCommUserRank(gone, &number), "argument.communicator");
    CHECK_ERROR(weftCommGetAsyncError(gone, &error), "argument.communicator");
    CHECK_ERROR(weftCommMemStats(gone, weftMemTotal, &bytes), "argument.communicator");
    CHECK_ERROR(weftCommExplain(gone, 1, weftFloat32, weftSum, text, sizeof text, NULL), "argument.communicator");
    CHECK_ERROR(weftCommRegister(gone, &value, 4, &handle), "argument.communicator");
    CHECK_ERROR(weftCommDeregister(gone, &value), "argument.communicator");
    CHECK_ERROR(weftRedOpCreatePreMulSum(&op, &value, weftFloat32, weftScalarHostImmediate, gone),
                "argument.communicator");
    CHECK_ERROR(weftRedOpDestroy(weftNumOps, gone), "argument.communicator");
    CHECK(weftGetLastError(gone) != NULL);
    CHECK_COMM_ERROR(gone, "argument.communicator", -1); /* as of the thread */
    CHECK_OK(weftCommAbort(aborted));
    CHECK_ERROR(weftCommAbort(aborted), "argument.communicator");
    CHECK_ERROR(weftCommDestroy(aborted), "argument.communicator");
    CHECK_ERROR(weftCommAbort(NULL), "argument.communicator");
}

static void* fresh_thread_has_no_error(void* unused) {
    (void)unused;
    CHECK(weftGetLastError(NULL)[0] == 0);
    CHECK_ERROR_NAMES(weftGetVersion(NULL), "argument.null", "weftGetVersion");
    return NULL;
}

static void last_errors(void) {
    weftComm_t one = alone(), other = alone();
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    pthread_t thread;
    int number;
    CHECK_ERROR(weftGetLastErrorInfo(one, NULL), "argument.null");
    CHECK_OK(weftGetLastErrorInfo(one, &info));
    CHECK(info.id[0] == 0 && info.code == weftSuccess && info.failedRank == -1 && info.operation == NULL);
    info.size = 8;
    CHECK_ERROR(weftGetLastErrorInfo(one, &info), "argument.config");
    CHECK(info.size == 8);
    CHECK(weftGetLastError(one)[0] == 0);
    CHECK_ERROR_NAMES(weftCommCount(one, NULL), "argument.null", "weftCommCount");
    CHECK_TEXT(weftGetLastError(one), "weftCommCount");
    CHECK(weftGetLastError(other)[0] == 0);
    CHECK_ERROR_NAMES(weftCommUserRank(other, NULL), "argument.null", "weftCommUserRank");
    CHECK_TEXT(weftGetLastError(one), "weftCommCount");
    CHECK_TEXT(weftGetLastError(other), "weftCommUserRank");
    CHECK_OK(weftCommCount(one, &number)); /* success clears nothing */
    CHECK_TEXT(weftGetLastError(one), "weftCommCount");
    CHECK(pthread_create(&thread, NULL, fresh_thread_has_no_error, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_TEXT(weftGetLastError(NULL), "weftCommUserRank"); /* not the other thread's */
    CHECK_OK(weftCommDestroy(one));
    CHECK_OK(weftCommDestroy(other));
}

int main(void) {
    setenv("WEFT_DEBUG", "NONE", 1); /* some thousand wrong calls need no warning each */
    run_case("versions and error strings are there for every code", versions_and_texts);
    run_case("devices are counted and lines are logged without a communicator", devices_and_log);
    run_case("unique ids differ", unique_ids);
    run_case("weftCommInitRank refuses impossible arguments and leaves NULL behind", init_rank);
    run_case("an id with any bit flipped is refused with a sentence", garbled_ids);
    run_case("a config is taken, copied and checked", configs);
    run_case("a config of another version's size is read as far as both know it", configs_of_other_versions);
    run_case("a list of algorithms is obeyed, and a misspelt one answered with those there are", algorithms);
    run_case("weftCommInitAll checks its arguments", init_all);
    run_case("without a launcher the environment gives a communicator of one", init_from_environment);
    run_case("weftAllReduce refuses each wrong argument and lives on", all_reduce);
    run_case("pre-multiplied sums belong to their communicator and type", pre_multiplied_sums);
    run_case("users' reductions belong to their communicator and type, and are called", users_reductions);
    run_case("a reduction's function that calls Weft on its communicator gets an error", reduction_that_calls_weft);
    run_case("bits are combined, of integers alone", bits);
    run_case("observers check their arguments", observers);
    run_case("a communicator that has ended is refused by every call", after_the_end);
    run_case("the last error is kept for each communicator and each thread", last_errors);
    return summary();
}
