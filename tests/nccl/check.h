/* check.h: checks for programs that call NCCL's interface: through Weft's abi.h, or through the toolkit's nccl.h.
 * Checks may run on any thread. tools/count_tests.py reads the summary line. */
#ifndef WEFT_TESTS_NCCL_CHECK_H
#define WEFT_TESTS_NCCL_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef NCCL_HEADER_OF_TOOLKIT
#include <nccl.h>
#define LAYOUT NCCL_VERSION_CODE
#ifndef NCCL_API_MAGIC /* older headers have the number only */
#define NCCL_API_MAGIC 0xcafebeefu
#endif
#else
#include "src/nccl/abi.h"
#define LAYOUT WEFT_NCCL_2_32
#endif

static int checks_made, checks_failed, cases_made, cases_failed;

static inline void check_here(int right, const char* what, const char* file, int line) {
    __atomic_fetch_add(&checks_made, 1, __ATOMIC_RELAXED);
    if (right) return;
    __atomic_fetch_add(&checks_failed, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "%s:%d: wrong: %s\n", file, line, what);
}
static inline void check_code_here(ncclResult_t code, ncclResult_t expected, const char* part, const char* what,
                                   const char* file, int line) {
    const char* text = ncclGetLastError(NULL);
    check_here(code == expected, what, file, line);
    if (code != expected)
        fprintf(stderr, "    returned %d (%s), expected %d; last error: %s\n", (int)code, ncclGetErrorString(code),
                (int)expected, text);
    if (!part) return;
    check_here(strstr(text, part) != NULL, part, file, line);
    if (!strstr(text, part)) fprintf(stderr, "    is not in: %s\n", text);
}

#define CHECK(condition) check_here(!!(condition), #condition, __FILE__, __LINE__)
#define OK(call) check_code_here(call, ncclSuccess, NULL, #call, __FILE__, __LINE__)
/* The call fails with the code, and this thread's last error has `part`. */
#define FAILS(call, code, part) check_code_here(call, code, part, #call, __FILE__, __LINE__)

static inline void run_case(const char* name, void (*body)(void)) {
    const int before = checks_failed;
    ++cases_made;
    body();
    if (checks_failed == before) return;
    ++cases_failed;
    fprintf(stderr, "failed: %s\n\n", name);
}

static inline int summary(void) {
    if (cases_failed == 0)
        printf("All tests passed (%d assertions in %d test cases)\n", checks_made, cases_made);
    else
        printf("test cases: %d | %d passed | %d failed\n", cases_made, cases_made - cases_failed, cases_failed);
    return cases_failed != 0;
}

#endif
