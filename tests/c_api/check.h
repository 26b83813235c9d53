/* check.h: cases and checks of the C programs here. A check that fails prints its place and goes on;
 * tools/count_tests.py reads the summary line. Checks may run on any thread. */
#ifndef WEFT_TESTS_CHECK_H
#define WEFT_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

static int checks_made, checks_failed, cases_made, cases_failed;

static inline void check_here(int right, const char* what, const char* file, int line) {
    __atomic_fetch_add(&checks_made, 1, __ATOMIC_RELAXED);
    if (right) return;
    __atomic_fetch_add(&checks_failed, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "%s:%d: wrong: %s\n", file, line, what);
}
static inline void check_code_here(weftResult_t code, weftResult_t expected, const char* what, const char* file,
                                   int line) {
    check_here(code == expected, what, file, line);
    if (code != expected)
        fprintf(stderr, "    returned %d (%s), expected %d; last error: %s\n", (int)code, weftGetErrorString(code),
                (int)expected, weftGetLastError(NULL));
}
static inline void check_text_here(const char* text, const char* part, const char* file, int line) {
    check_here(strstr(text, part) != NULL, part, file, line);
    if (!strstr(text, part)) fprintf(stderr, "    is not in: %s\n", text);
}

#define CHECK(condition) check_here(!!(condition), #condition, __FILE__, __LINE__)
#define CHECK_CODE(call, expected) check_code_here(call, expected, #call, __FILE__, __LINE__)
#define CHECK_OK(call) CHECK_CODE(call, weftSuccess)
/* The call fails with the code, and this thread's last error has `part`. */
#define CHECK_FAILS(call, expected, part)                                  \
    do {                                                                   \
        CHECK_CODE(call, expected);                                        \
        check_text_here(weftGetLastError(NULL), part, __FILE__, __LINE__); \
    } while (0)
/* The call fails with the error of this id, and weftGetLastError ends with it. */
static inline void check_error_here(weftResult_t code, const char* id, const char* name, const char* what,
                                    const char* file, int line) {
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    const char* text = weftGetLastError(NULL);
    char bracketed[64];
    const weftResult_t asked = weftGetLastErrorInfo(NULL, &info);
    const int same = asked == weftSuccess && code != weftSuccess && info.code == code && strcmp(info.id, id) == 0;
    check_here(same, what, file, line);
    if (!same) fprintf(stderr, "    returned %d, expected %s; last error: %s\n", (int)code, id, text);
    snprintf(bracketed, sizeof bracketed, " [%s]", id);
    check_here(strlen(text) > strlen(bracketed) && strcmp(text + strlen(text) - strlen(bracketed), bracketed) == 0,
               "the text ends with the id", file, line);
    check_text_here(text, name, file, line);
}
#define CHECK_ERROR(call, id) check_error_here(call, id, "", #call, __FILE__, __LINE__)
/* The same, and the sentence names the argument. */
#define CHECK_ERROR_NAMES(call, id, argument) check_error_here(call, id, argument, #call, __FILE__, __LINE__)
/* The newest error of the communicator has the id, and names the failed rank; -1: any. */
static inline void check_comm_error_here(weftComm_t comm, const char* id, int rank, const char* file, int line) {
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    check_here(weftGetLastErrorInfo(comm, &info) == weftSuccess && strcmp(info.id, id) == 0, id, file, line);
    if (rank >= 0) check_here(info.failedRank == rank, "the rank that failed", file, line);
    if (strcmp(info.id, id) != 0 || (rank >= 0 && info.failedRank != rank))
        fprintf(stderr, "    the error is %s, of rank %d: %s\n", info.id, info.failedRank, weftGetLastError(comm));
}
#define CHECK_COMM_ERROR(comm, id, rank) check_comm_error_here(comm, id, rank, __FILE__, __LINE__)
#define CHECK_TEXT(text, part) check_text_here(text, part, __FILE__, __LINE__)

/* Runs a case; its name is a sentence about behaviour. */
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
