/* exit_test.c: a program that ends while a stream's call waits for a rank that never comes, with others behind it. */
#include "check.h"

#include <time.h>

int main(void) {
    weftComm_t comms[2];
    weftStream_t streams[2];
    static int values[2];
    struct timespec time = {0, 50000000};
    int i;
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    for (i = 0; i < 2; ++i) CHECK_OK(weftStreamCreate(&streams[i]));
    for (i = 0; i < 4; ++i)
        CHECK_OK(weftAllReduce(&values[0], &values[0], 1, weftInt32, weftSum, comms[0], streams[i % 2]));
    nanosleep(&time, NULL); /* the first ones begin */
    cases_made = 1;
    return summary(); /* nothing is waited for or destroyed */
}
