/* streams.h: ranks of one thread, each with a stream of host memory. */
#ifndef WEFT_TESTS_STREAMS_H
#define WEFT_TESTS_STREAMS_H

#include <stdint.h>
#include <time.h>

#include "check.h"

enum { ranks = 4, many = 3000 };

static weftComm_t comms[ranks];
static weftStream_t streams[ranks];

static inline void begin_with(int count) {
    int rank;
    CHECK_OK(weftCommInitAll(comms, count, NULL));
    for (rank = 0; rank < count; ++rank) CHECK_OK(weftStreamCreate(&streams[rank]));
}
static inline void end_with(int count) {
    int rank;
    for (rank = 0; rank < count; ++rank) CHECK_OK(weftStreamDestroy(streams[rank]));
    for (rank = 0; rank < count; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
}
static inline void wait_all(int count) {
    int rank;
    for (rank = 0; rank < count; ++rank) CHECK_OK(weftStreamWait(streams[rank], WEFT_STREAM_ALL, -1));
}
static inline void nap(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}
#endif
