/* ended_test.c: every function of weft.h that takes a communicator, on one that is finalized, dead or destroyed. The
 * program reads weft.h, its argument, for the list of these functions. */
#include "check.h"

enum { ranks = 2, elements = 8, window_bytes = 64 };

static int values[elements * ranks], others[elements * ranks];
static const size_t counts[ranks] = {elements, elements}, places[ranks] = {0, elements};

/* The objects that exist when the communicator comes to its state. */
static weftComm_t comms[ranks];
static weftWindow_t windows[ranks];
static weftStream_t stream; /* of the calls that take one; NULL: none */
static weftRedOp_t reduction;
static void* registered;

static weftResult_t all_reduce(weftComm_t comm) {
    return weftAllReduce(values, others, elements, weftInt32, weftSum, comm, stream);
}
static weftResult_t broadcast(weftComm_t comm) {
    return weftBroadcast(values, others, elements, weftInt32, 0, comm, stream);
}
static weftResult_t bcast(weftComm_t comm) { return weftBcast(values, elements, weftInt32, 0, comm, stream); }
static weftResult_t reduce(weftComm_t comm) {
    return weftReduce(values, others, elements, weftInt32, weftSum, 0, comm, stream);
}
static weftResult_t all_gather(weftComm_t comm) {
    return weftAllGather(values, others, elements, weftInt32, comm, stream);
}
static weftResult_t reduce_scatter(weftComm_t comm) {
    return weftReduceScatter(values, others, elements, weftInt32, weftSum, comm, stream);
}
static weftResult_t all_to_all(weftComm_t comm) {
    return weftAlltoAll(values, others, elements, weftInt32, comm, stream);
}
static weftResult_t gather(weftComm_t comm) { return weftGather(values, others, elements, weftInt32, 0, comm, stream); }
static weftResult_t scatter(weftComm_t comm) {
    return weftScatter(values, others, elements, weftInt32, 0, comm, stream);
}
static weftResult_t barrier(weftComm_t comm) { return weftBarrier(comm, stream); }
static weftResult_t send(weftComm_t comm) { return weftSend(values, elements, weftInt32, 1, comm, stream); }
static weftResult_t receive(weftComm_t comm) { return weftRecv(values, elements, weftInt32, 1, comm, stream); }
static weftResult_t send_receive(weftComm_t comm) {
    return weftSendRecv(values, elements, 1, others, elements, 1, weftInt32, comm, stream);
}
static weftResult_t all_to_all_v(weftComm_t comm) {
    return weftAlltoAllv(values, counts, places, others, counts, places, weftInt32, comm, stream);
}
static weftResult_t all_to_all_v_device_counts(weftComm_t comm) {
    return weftAlltoAllvDeviceCounts(values, counts, places, others, counts, places, weftInt32, comm, stream);
}
static weftResult_t gather_v(weftComm_t comm) {
    return weftGatherv(values, elements, others, counts, places, weftInt32, 0, comm, stream);
}
static weftResult_t scatter_v(weftComm_t comm) {
    return weftScatterv(values, counts, places, others, elements, weftInt32, 0, comm, stream);
}
static weftResult_t all_gather_v(weftComm_t comm) {
    return weftAllGatherv(values, elements, others, counts, places, weftInt32, comm, stream);
}
static weftResult_t reduce_scatter_v(weftComm_t comm) {
    return weftReduceScatterv(values, others, counts, weftInt32, weftSum, comm, stream);
}
static weftResult_t put(weftComm_t comm) {
    return weftPut(values, elements, weftInt32, 1, windows[0], 0, comm, stream);
}
static weftResult_t put_signal(weftComm_t comm) {
    return weftPutSignal(values, elements, weftInt32, 1, windows[0], 0, 0, 0, 0, comm, stream);
}
static weftResult_t get(weftComm_t comm) {
    return weftGet(values, elements, weftInt32, 1, windows[0], 0, comm, stream);
}
static weftResult_t signal(weftComm_t comm) { return weftSignal(1, 0, 0, 0, comm, stream); }
static weftResult_t wait_signal(weftComm_t comm) {
    static const weftWaitSignalDesc_t one = {1, 1, 0, 0};
    return weftWaitSignal(1, &one, comm, stream);
}
static weftResult_t window_register(weftComm_t comm) {
    weftWindow_t window = windows[0];
    weftResult_t result = weftCommWindowRegister(comm, others, window_bytes, &window, WEFT_WIN_DEFAULT);
    if (result != weftSuccess && result != weftInProgress) CHECK(window == NULL);
    return result;
}
static weftResult_t window_deregister(weftComm_t comm) { return weftCommWindowDeregister(comm, windows[0]); }
static weftResult_t window_pointer(weftComm_t comm) {
    void* place = NULL;
    return weftWinGetUserPtr(comm, windows[0], &place);
}
static weftComm_t child;
static weftResult_t split(weftComm_t comm) { return weftCommSplit(comm, 0, 0, &child, NULL); }
static weftResult_t shrink(weftComm_t comm) {
    int other = 1;
    return weftCommShrink(comm, &other, 1, &child, NULL, WEFT_SHRINK_DEFAULT);
}
static weftResult_t set_call_config(weftComm_t comm) {
    weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
    return weftCommSetCallConfig(comm, &config);
}
static void keep_left(const void* left, const void* right, void* result, size_t count, weftDataType_t type,
                      void* context) {
    (void)right, (void)type, (void)context;
    memmove(result, left, count * sizeof(int));
}
static weftResult_t make_reduction(weftComm_t comm) {
    weftRedOp_t made;
    return weftRedOpCreate(&made, keep_left, NULL, weftInt32, 1, comm);
}
static weftResult_t make_scaled_sum(weftComm_t comm) {
    weftRedOp_t made;
    int scalar = 2;
    return weftRedOpCreatePreMulSum(&made, &scalar, weftInt32, weftScalarHostImmediate, comm);
}
static weftResult_t end_reduction(weftComm_t comm) { return weftRedOpDestroy(reduction, comm); }
static weftResult_t declare(weftComm_t comm) {
    void* handle;
    return weftCommRegister(comm, values, sizeof values, &handle);
}
static weftResult_t undeclare(weftComm_t comm) { return weftCommDeregister(comm, registered); }
static weftResult_t async_error(weftComm_t comm) {
    weftResult_t error;
    return weftCommGetAsyncError(comm, &error);
}
static weftResult_t count(weftComm_t comm) {
    int number;
    return weftCommCount(comm, &number);
}
static weftResult_t user_rank(weftComm_t comm) {
    int number;
    return weftCommUserRank(comm, &number);
}
static weftResult_t device(weftComm_t comm) {
    int number;
    return weftCommCuDevice(comm, &number);
}
static weftResult_t memory(weftComm_t comm) {
    uint64_t bytes;
    return weftCommMemStats(comm, weftMemTotal, &bytes);
}
static char text[4000];
static weftResult_t explain(weftComm_t comm) {
    return weftCommExplain(comm, elements, weftInt32, weftSum, text, sizeof text, NULL);
}
static weftResult_t explain_collective(weftComm_t comm) {
    return weftCommExplainCollective(comm, "broadcast", elements, weftInt32, weftSum, 0, text, sizeof text, NULL);
}

typedef enum {
    call,    /* with a stream, in groups, prepared */
    making,  /* the same, but with neither stream nor prepared: all ranks make or end something together */
    one_try, /* refused, whatever its arguments are */
    giving,  /* back what others know of: refused if they may be waited for, else done */
    own,     /* concerns no other rank: as ever */
    ending,  /* of the communicator */
    words    /* the text of an error, at all times */
} Kind;

static const struct {
    const char* name;
    Kind kind;
    weftResult_t (*make)(weftComm_t);
} functions[] = {
    {"weftAllReduce", call, all_reduce},
    {"weftBroadcast", call, broadcast},
    {"weftBcast", call, bcast},
    {"weftReduce", call, reduce},
    {"weftAllGather", call, all_gather},
    {"weftReduceScatter", call, reduce_scatter},
    {"weftAlltoAll", call, all_to_all},
    {"weftGather", call, gather},
    {"weftScatter", call, scatter},
    {"weftBarrier", call, barrier},
    {"weftSend", call, send},
    {"weftRecv", call, receive},
    {"weftSendRecv", call, send_receive},
    {"weftAlltoAllv", call, all_to_all_v},
    {"weftAlltoAllvDeviceCounts", one_try, all_to_all_v_device_counts},
    {"weftGatherv", call, gather_v},
    {"weftScatterv", call, scatter_v},
    {"weftAllGatherv", call, all_gather_v},
    {"weftReduceScatterv", call, reduce_scatter_v},
    {"weftPut", call, put},
    {"weftPutSignal", call, put_signal},
    {"weftGet", call, get},
    {"weftSignal", call, signal},
    {"weftWaitSignal", call, wait_signal},
    {"weftCommWindowRegister", making, window_register},
    {"weftCommSplit", making, split},
    {"weftCommShrink", making, shrink},
    {"weftCommFinalize", one_try, weftCommFinalize},
    {"weftWinGetUserPtr", own, window_pointer},
    {"weftCommWindowDeregister", giving, window_deregister},
    {"weftCommSetCallConfig", own, set_call_config},
    {"weftRedOpCreate", own, make_reduction},
    {"weftRedOpCreatePreMulSum", own, make_scaled_sum},
    {"weftRedOpDestroy", own, end_reduction},
    {"weftCommRegister", own, declare},
    {"weftCommDeregister", own, undeclare},
    {"weftCommGetAsyncError", own, async_error},
    {"weftCommCount", own, count},
    {"weftCommUserRank", own, user_rank},
    {"weftCommCuDevice", one_try, device},
    {"weftCommMemStats", own, memory},
    {"weftCommExplain", own, explain},
    {"weftCommExplainCollective", own, explain_collective},
    {"weftCommDestroy", ending, weftCommDestroy},
    {"weftCommAbort", ending, weftCommAbort},
    {"weftGetLastError", words, NULL},
    {"weftGetLastErrorInfo", words, NULL},
};
enum { function_count = sizeof functions / sizeof functions[0] };

/* A function of the header that is missing here is not tested. */
static const char* header;
static void all_functions_are_here(void) {
    FILE* file = fopen(header, "r");
    char line[300], name[100] = "";
    int found = 0;
    CHECK(file != NULL);
    while (file && fgets(line, sizeof line, file)) {
        const char* begin = strncmp(line, "WEFT_API ", 9) == 0 ? strchr(line, '(') : NULL;
        size_t i;
        if (begin) {
            while (begin[-1] != ' ') --begin;
            (void)sscanf(begin, "%99[^(]", name);
        }
        if (!strstr(line, "weftComm_t comm") || !name[0]) continue;
        for (i = 0; i < function_count && strcmp(functions[i].name, name) != 0; ++i) {
        }
        CHECK(i < function_count);
        if (i == function_count) fprintf(stderr, "    %s\n", name);
        ++found;
    }
    if (file) (void)fclose(file);
    CHECK(found == function_count);
}

static void make_all(int blocking) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftUniqueId id;
    weftResult_t state = weftInProgress;
    int rank, scalar = 3;
    config.blocking = blocking;
    config.timeoutMs = 20000; /* what should be refused and waits is told so before the test's own limit */
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        weftResult_t made = weftCommInitRankConfig(&comms[rank], ranks, id, rank, &config);
        CHECK(made == weftSuccess || made == weftInProgress);
    }
    CHECK_CODE(weftGroupEnd(), blocking ? weftSuccess : weftInProgress);
    for (rank = 0; rank < ranks; ++rank) do
            CHECK_OK(weftCommGetAsyncError(comms[rank], &state));
        while (state == weftInProgress);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftCommWindowRegister(comms[rank], values, window_bytes, &windows[rank], WEFT_WIN_DEFAULT));
    CHECK_CODE(weftGroupEnd(), blocking ? weftSuccess : weftInProgress);
    for (rank = 0; rank < ranks; ++rank) do
            CHECK_OK(weftCommGetAsyncError(comms[rank], &state));
        while (state == weftInProgress);
    CHECK_OK(weftRedOpCreatePreMulSum(&reduction, &scalar, weftInt32, weftScalarHostImmediate, comms[0]));
    CHECK_OK(weftCommRegister(comms[0], values, sizeof values, &registered));
}

static void name_function(int failed_before, size_t function) {
    if (checks_failed > failed_before) fprintf(stderr, "    in %s\n", functions[function].name);
}

/* Each by itself. */
static void walk(weftResult_t expected, const char* sentence, weftResult_t for_own) {
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    size_t i;
    for (i = 0; i < function_count; ++i) {
        const int failed_before = checks_failed;
        switch (functions[i].kind) {
            case call:
            case making:
                CHECK_FAILS(functions[i].make(comms[0]), expected, sentence);
                CHECK(child == NULL);
                break;
            case one_try: CHECK(functions[i].make(comms[0]) != weftSuccess); break;
            case giving:
                if (expected == weftRemoteError) {
                    CHECK_OK(functions[i].make(comms[0]));
                } else {
                    CHECK_FAILS(functions[i].make(comms[0]), expected, sentence);
                }
                break;
            case own: CHECK_CODE(functions[i].make(comms[0]), for_own); break;
            case ending:
                if (for_own != weftSuccess) CHECK_FAILS(functions[i].make(comms[0]), for_own, sentence);
                break;
            case words:
                CHECK(weftGetLastError(comms[0]) != NULL);
                CHECK_OK(weftGetLastErrorInfo(comms[0], &info));
                break;
        }
        name_function(failed_before, i);
    }
}

/* In a group, which its calls enter as ever. */
static void walk_in_groups(weftResult_t expected, const char* sentence) {
    size_t i;
    for (i = 0; i < function_count; ++i) {
        const int failed_before = checks_failed;
        if (functions[i].kind != call && functions[i].kind != making) continue;
        CHECK_OK(weftGroupStart());
        CHECK_OK(functions[i].make(comms[0]));
        CHECK_FAILS(weftGroupEnd(), expected, sentence);
        name_function(failed_before, i);
    }
    CHECK_OK(weftGroupStart());
    for (i = 0; i < function_count; ++i)
        if (functions[i].kind == call || functions[i].kind == making) CHECK_OK(functions[i].make(comms[0]));
    CHECK_FAILS(weftGroupEnd(), expected, sentence);
}

/* On a stream, or on that of a non-blocking communicator: the error comes later, and the stream goes on. */
static void walk_on_a_stream(weftResult_t expected, const char* sentence) {
    size_t i;
    CHECK_OK(weftStreamCreate(&stream));
    for (i = 0; i < function_count; ++i) {
        const int failed_before = checks_failed;
        if (functions[i].kind != call) continue;
        CHECK_OK(functions[i].make(comms[0]));
        CHECK_FAILS(weftStreamWait(stream, WEFT_STREAM_ALL, -1), expected, sentence);
        CHECK_TEXT(weftGetLastError(comms[0]), sentence);
        name_function(failed_before, i);
    }
    CHECK_OK(weftStreamDestroy(stream));
    stream = NULL;
}

static weftPrepared_t prepared[function_count];
static void prepare_all(void) {
    size_t i;
    for (i = 0; i < function_count; ++i) {
        prepared[i] = NULL;
        if (functions[i].kind != call) continue;
        CHECK_OK(weftGroupStart());
        CHECK_OK(functions[i].make(comms[0]));
        CHECK_OK(weftGroupPrepare(&prepared[i]));
    }
}
static void start_all(weftResult_t expected, const char* sentence) {
    size_t i;
    for (i = 0; i < function_count; ++i) {
        const int failed_before = checks_failed;
        if (!prepared[i]) continue;
        CHECK_FAILS(weftPreparedStart(prepared[i]), expected, sentence);
        CHECK_OK(weftPreparedDestroy(prepared[i]));
        name_function(failed_before, i);
    }
}

static const char was_finalized[] = "the communicator was finalized", is_dead[] = "the communicator is dead",
                  was_destroyed[] = "destroyed or aborted before";

static void finalized(void) {
    make_all(1);
    prepare_all();
    CHECK_OK(weftCommFinalize(comms[0]));
    start_all(weftInvalidUsage, was_finalized);
    walk_on_a_stream(weftInvalidUsage, was_finalized);
    walk_in_groups(weftInvalidUsage, was_finalized);
    walk(weftInvalidUsage, was_finalized, weftSuccess);
    CHECK_OK(weftCommDestroy(comms[0]));
    CHECK_OK(weftCommAbort(comms[1]));
}

static void finalized_without_blocking(void) {
    weftResult_t state;
    size_t i;
    make_all(0);
    CHECK_CODE(weftCommFinalize(comms[0]), weftInProgress);
    for (i = 0; i < function_count; ++i) {
        const int failed_before = checks_failed;
        if (functions[i].kind != call && functions[i].kind != making && functions[i].kind != giving) continue;
        CHECK_CODE(functions[i].make(comms[0]), weftInProgress);
        do CHECK_OK(weftCommGetAsyncError(comms[0], &state));
        while (state == weftInProgress);
        CHECK(state == weftInvalidUsage);
        CHECK_TEXT(weftGetLastError(comms[0]), was_finalized);
        if (child) CHECK_OK(weftCommDestroy(child)); /* handed out before it was refused */
        child = NULL;
        name_function(failed_before, i);
    }
    CHECK_OK(weftCommDestroy(comms[0]));
    CHECK_OK(weftCommDestroy(comms[1]));
}

static void dead(void) {
    make_all(1);
    prepare_all();
    CHECK_OK(weftCommAbort(comms[1]));
    CHECK(weftBarrier(comms[0], NULL) != weftSuccess);
    start_all(weftRemoteError, is_dead);
    walk_on_a_stream(weftRemoteError, is_dead);
    walk(weftRemoteError, is_dead, weftSuccess);
    CHECK_OK(weftCommDestroy(comms[0]));
}

static void destroyed(void) {
    make_all(1);
    prepare_all();
    CHECK_OK(weftCommDestroy(comms[0]));
    start_all(weftInvalidArgument, was_destroyed);
    walk(weftInvalidArgument, was_destroyed, weftInvalidArgument);
    CHECK_OK(weftCommDestroy(comms[1]));
}

int main(int argument_count, char** arguments) {
    setenv("WEFT_DEBUG", "NONE", 1); /* refusals need no warning each */
    if (argument_count != 2) return 2;
    header = arguments[1];
    run_case("every function of weft.h that takes a communicator is called here", all_functions_are_here);
    run_case("a finalized communicator refuses every call, in any form", finalized);
    run_case("a finalized non-blocking communicator reports the error of every call later", finalized_without_blocking);
    run_case("a dead communicator gives every call the error that it died of", dead);
    run_case("a destroyed communicator is refused by every function", destroyed);
    return summary();
}
