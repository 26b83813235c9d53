/* call_loop.c: an 8-byte all-reduce called from C in a loop, for overhead.py, which loads it by ctypes. */
#define _GNU_SOURCE
#include <time.h>
#include <weft/weft.h>

static weftComm_t comm;

__attribute__((visibility("default"))) int join(void) { return (int)weftCommInitFromEnvironment(&comm, NULL); }

__attribute__((visibility("default"))) int leave(void) { return (int)weftCommDestroy(comm); }

/* Seconds of `calls` calls, or a negative number if one failed. */
__attribute__((visibility("default"))) double seconds_of(float* elements, int calls) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int call = 0; call < calls; ++call)
        if (weftAllReduce(elements, elements, 2, weftFloat32, weftSum, comm, NULL) != weftSuccess) return -1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}
