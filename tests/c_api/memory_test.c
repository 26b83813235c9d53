/* memory_test.c: mappable memory, registration, what a communicator holds, and its explanations. */
#include "check.h"

#include <stdint.h>

static void mappable_memory(void) {
    void *ptr = &ptr, *other = NULL;
    size_t i, wrong = 0;
    CHECK_ERROR_NAMES(weftHostAlloc(NULL, 10), "argument.null", "ptr");
    CHECK_ERROR(weftHostAlloc(&ptr, SIZE_MAX), "memory.arena");
    CHECK(ptr == NULL);
    CHECK_ERROR(weftHostAlloc(&ptr, SIZE_MAX / 2), "memory.arena");
    CHECK_OK(weftHostAlloc(&ptr, 100000));
    CHECK((uintptr_t)ptr % 4096 == 0);
    for (i = 0; i < 100000; ++i) wrong += ((char*)ptr)[i] != 0;
    CHECK(wrong == 0);
    memset(ptr, 1, 100000);
    CHECK_OK(weftHostAlloc(&other, 0));
    CHECK(other != NULL && other != ptr);
    CHECK_OK(weftMemFree(other));
    CHECK_ERROR(weftMemFree((char*)ptr + 4096), "memory.not-allocated");
    CHECK_OK(weftMemFree(ptr));
    CHECK_ERROR(weftMemFree(ptr), "memory.not-allocated");
    CHECK_ERROR(weftMemFree(&ptr), "memory.not-allocated");
    CHECK_OK(weftMemFree(NULL));
    CHECK_OK(weftHostAlloc(&ptr, 100000)); /* zeroed also when used again */
    for (i = 0; i < 100000; ++i) wrong += ((char*)ptr)[i] != 0;
    CHECK(wrong == 0);
    CHECK_OK(weftMemFree(ptr));
}

/* Whether or not the build knows GPUs. */
static void memory_of_no_device(void) {
    void* ptr = &ptr;
    CHECK_ERROR_NAMES(weftMemAlloc(NULL, 10), "argument.null", "ptr");
    CHECK_FAILS(weftMemAlloc(&ptr, 10), weftInvalidUsage, "GPU");
    CHECK(ptr == NULL);
}

static void registration(void) {
    weftComm_t comms[2];
    void *mappable = NULL, *handle = NULL, *second = NULL;
    float private_memory[16];
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    CHECK_OK(weftHostAlloc(&mappable, 4096));
    CHECK_OK(weftCommRegister(comms[0], private_memory, sizeof private_memory, &handle));
    CHECK_OK(weftCommRegister(comms[0], mappable, 4096, &second));
    CHECK(handle != NULL && second != NULL && handle != second);
    CHECK_ERROR(weftCommDeregister(comms[1], handle), "argument.handle");
    CHECK_OK(weftCommDeregister(comms[0], handle));
    CHECK_ERROR(weftCommDeregister(comms[0], handle), "argument.handle");
    CHECK_OK(weftCommDeregister(comms[0], second));
    CHECK_ERROR(weftCommDeregister(comms[0], NULL), "argument.handle");
    CHECK_ERROR_NAMES(weftCommRegister(comms[0], NULL, 8, &handle), "argument.null", "buff");
    CHECK_ERROR_NAMES(weftCommRegister(comms[0], mappable, 8, NULL), "argument.null", "handle");
    CHECK_ERROR(weftCommRegister(NULL, mappable, 8, &handle), "argument.communicator");
    CHECK_ERROR(weftCommDeregister(NULL, handle), "argument.communicator");
    CHECK_OK(weftMemFree(mappable));
    CHECK_OK(weftCommDestroy(comms[0]));
    CHECK_OK(weftCommDestroy(comms[1]));
}

static uint64_t held(weftComm_t comm, weftMemStat_t stat) {
    uint64_t bytes = UINT64_MAX;
    CHECK_OK(weftCommMemStats(comm, stat, &bytes));
    return bytes;
}

static void statistics(void) {
    enum { ranks = 8, count = 1 << 20 };
    weftComm_t comms[ranks];
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftUniqueId id;
    float* data = calloc((size_t)ranks * count, sizeof *data);
    uint64_t fresh, bytes;
    int rank;
    CHECK_OK(weftCommInitAll(comms, ranks, NULL));
    for (rank = 0; rank < ranks; ++rank) {
        CHECK(held(comms[rank], weftMemTotal) < (uint64_t)8 << 20); /* until used */
        CHECK(held(comms[rank], weftMemTotal) == held(comms[rank], weftMemFlagBlock) +
                                                     held(comms[rank], weftMemConnection) +
                                                     held(comms[rank], weftMemHeap));
    }
    CHECK_ERROR_NAMES(weftCommMemStats(comms[0], weftMemTotal, NULL), "argument.null", "bytes");
    CHECK_ERROR_NAMES(weftCommMemStats(comms[0], (weftMemStat_t)9, &bytes), "argument.value", "stat");
    CHECK_ERROR(weftCommMemStats(NULL, weftMemTotal, &bytes), "argument.communicator");
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));

    config.algo = "ring"; /* connections are paid for when they are made */
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommInitRankConfig(&comms[rank], ranks, id, rank, &config));
    CHECK_OK(weftGroupEnd());
    fresh = held(comms[0], weftMemConnection);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftAllReduce(data + (size_t)rank * count, data + (size_t)rank * count, count, weftFloat32, weftSum,
                               comms[rank], NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(held(comms[0], weftMemConnection) > fresh);
    CHECK(held(comms[0], weftMemHeap) > 0);
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
    free(data);
}

static void explanations(void) {
    weftComm_t comms[2];
    char whole[1 << 14], part[40], untouched = 'x';
    size_t needed = 0, again = 0, capacity;
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    CHECK_OK(weftCommExplain(comms[0], 1000, weftFloat32, weftSum, whole, sizeof whole, &needed));
    CHECK(needed == strlen(whole) + 1);
    CHECK_TEXT(whole, "1000 float");
    CHECK_TEXT(whole, "4000 bytes");
    CHECK_TEXT(whole, "candidate one_shot");
    CHECK_TEXT(whole, "candidate two_shot");
    CHECK_TEXT(whole, "candidate ring");
    CHECK_TEXT(whole, "chosen: ");
    CHECK_OK(weftCommExplain(comms[0], 1000, weftFloat32, weftSum, NULL, 0, &again));
    CHECK(again == needed);
    CHECK_OK(weftCommExplain(comms[0], 1000, weftFloat32, weftSum, &untouched, 0, NULL));
    CHECK(untouched == 'x');
    for (capacity = 1; capacity <= sizeof part; ++capacity) {
        memset(part, 'x', sizeof part);
        CHECK_OK(weftCommExplain(comms[0], 1000, weftFloat32, weftSum, part, capacity, &again));
        CHECK(again == needed && part[capacity - 1] == 0 && memcmp(part, whole, capacity - 1) == 0);
        CHECK(capacity == sizeof part || part[capacity] == 'x');
    }
    memset(whole, 'x', sizeof whole);
    CHECK_OK(weftCommExplain(comms[0], 1000, weftFloat32, weftSum, whole, needed, NULL));
    CHECK(strlen(whole) + 1 == needed);
    CHECK_ERROR_NAMES(weftCommExplain(comms[0], 1, weftFloat32, weftSum, NULL, 5, NULL), "argument.null", "text");
    CHECK_ERROR_NAMES(weftCommExplain(comms[0], 1, weftNumTypes, weftSum, whole, sizeof whole, NULL),
                      "argument.datatype", "datatype");
    CHECK_ERROR_NAMES(weftCommExplain(comms[0], 1, weftFloat32, weftNumOps, whole, sizeof whole, NULL),
                      "argument.reduction", "op");
    CHECK_OK(weftCommExplainCollective(comms[0], "reduce", 1000, weftFloat32, weftSum, 1, whole, sizeof whole, NULL));
    CHECK_TEXT(whole, "reduce of 1000 float, sum, root 1");
    CHECK_TEXT(whole, "candidate binomial_tree");
    CHECK_TEXT(whole, "chosen: ");
    CHECK_OK(weftCommExplainCollective(comms[0], "barrier", 1, weftUint8, weftSum, 0, whole, sizeof whole, NULL));
    CHECK_TEXT(whole, "candidate dissemination");
    CHECK_ERROR_NAMES(
        weftCommExplainCollective(comms[0], "reduce", 1, weftFloat32, weftSum, 99, whole, sizeof whole, NULL),
        "argument.rank", "root");
    CHECK_ERROR(
        weftCommExplainCollective(comms[0], "all_to_all_v", 1, weftFloat32, weftSum, 0, whole, sizeof whole, NULL),
        "argument.value");
    CHECK_ERROR_NAMES(weftCommExplainCollective(comms[0], NULL, 1, weftFloat32, weftSum, 0, whole, sizeof whole, NULL),
                      "argument.null", "collective");
    CHECK_ERROR(weftCommExplain(NULL, 1, weftFloat32, weftSum, whole, sizeof whole, NULL), "argument.communicator");
    CHECK_OK(weftCommDestroy(comms[0]));
    CHECK_OK(weftCommDestroy(comms[1]));
}

int main(void) {
    setenv("WEFT_DEBUG", "NONE", 1);
    setenv("WEFT_CUDA_LIBRARY", "none", 1);
    run_case("memory of weftHostAlloc is zeroed, page aligned, freed once", mappable_memory);
    run_case("memory of a device is refused where there is none", memory_of_no_device);
    run_case("buffers of either kind are registered and deregistered", registration);
    run_case("a communicator reports its memory: little until it is used", statistics);
    run_case("an explanation is cut to the capacity and its full length returned", explanations);
    return summary();
}
