/* check.h: shared by the examples in C.
 * A failed call ends the program with the library's message, a wrong result with its own line. */
#ifndef WEFT_EXAMPLES_CHECK_H
#define WEFT_EXAMPLES_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

#define CHECK(call)                                                            \
    do {                                                                       \
        if ((call) != weftSuccess) {                                           \
            fprintf(stderr, "%s failed: %s\n", #call, weftGetLastError(NULL)); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

#endif
