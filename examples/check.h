/* check.h: what the examples in C share: a call that fails ends the program with the library's sentence, a wrong result
 * with a line of its own. */
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
