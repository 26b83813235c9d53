/* process_test.c: a program that closes standard streams or all descriptors, cancels threads, or limits its address
 * space. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

long syscall(long number, ...); /* POSIX has none */

enum { ranks = 3, elements = 300000, own_from = 3, own_to = 200 };

static int over_tcp(void) {
    const char* transports = getenv("WEFT_TRANSPORTS");
    return transports && strcmp(transports, "tcp") == 0;
}

static void pause_ms(long ms) {
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Each rank in a process of its own; rank 0 makes the id. `body` returns the number of wrong things. */
static void in_processes(int count, int (*body)(int rank, int count, weftUniqueId id)) {
    int pipes[2], rank, status;
    CHECK(pipe(pipes) == 0);
    for (rank = 0; rank < count; ++rank) {
        const pid_t child = fork();
        weftUniqueId id;
        int other;
        CHECK(child >= 0);
        if (child != 0) continue;
        if (rank == 0) {
            if (weftGetUniqueId(&id)) _exit(100);
            for (other = 1; other < count; ++other)
                if (write(pipes[1], &id, sizeof id) != sizeof id) _exit(101);
        } else if (read(pipes[0], &id, sizeof id) != sizeof id) {
            _exit(102);
        }
        close(pipes[0]), close(pipes[1]);
        _exit(body(rank, count, id));
    }
    close(pipes[0]), close(pipes[1]);
    for (rank = 0; rank < count; ++rank) {
        status = -1;
        CHECK(wait(&status) > 0);
        CHECK(status == 0);
        if (status != 0) fprintf(stderr, "    status %x of a rank\n", (unsigned)status);
    }
}

/* How many elements are wrong; the call's failure counts as one. */
static int sum_is_wrong(weftComm_t comm, int count) {
    float *from = malloc(elements * sizeof *from), *to = malloc(elements * sizeof *to);
    int i, wrong = 0;
    for (i = 0; i < elements; ++i) from[i] = 1;
    wrong += weftAllReduce(from, to, elements, weftFloat, weftSum, comm, NULL) != weftSuccess;
    for (i = 0; i < elements && !wrong; ++i) wrong += to[i] != (float)count;
    free(from), free(to);
    return wrong;
}

/* ---- Descriptors */

/* By system calls of its own: TSan calls it a race that Weft holds a free standard number meanwhile. */
static void* write_to_standard_streams(void* stop) {
    while (!__atomic_load_n((int*)stop, __ATOMIC_RELAXED)) {
        if (syscall(SYS_write, 1, "log line\n", 9) < 0 || syscall(SYS_write, 2, "warning!\n", 9) < 0) (void)errno;
        pause_ms(1);
    }
    return NULL;
}

static int without_standard_streams(int count, int rank, weftUniqueId id, int before) {
    weftComm_t comm = NULL;
    pthread_t thread;
    int round, wrong = 0, stop = 0;
#ifdef SANITIZED
    /* UBSan examines memory through pipes, which get the free numbers. */
    signal(SIGPIPE, SIG_IGN);
#endif
    if (before) close(0), close(1), close(2);
    if (before) pthread_create(&thread, NULL, write_to_standard_streams, &stop);
    if (weftCommInitRank(&comm, count, id, rank)) return 1;
    if (!before) close(0), close(1), close(2);
    for (round = 0; round < 6; ++round) {
        wrong += sum_is_wrong(comm, count);
        if (!before && round == 0) pthread_create(&thread, NULL, write_to_standard_streams, &stop);
    }
    wrong += weftCommDestroy(comm) != weftSuccess;
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    return wrong > 0;
}
static int closes_streams_after_init(int rank, int count, weftUniqueId id) {
    return without_standard_streams(count, rank, id, 0);
}
static int closes_streams_before_init(int rank, int count, weftUniqueId id) {
    return without_standard_streams(count, rank, id, 1);
}
static void standard_streams_closed_after_init(void) { in_processes(ranks, closes_streams_after_init); }
static void standard_streams_closed_before_init(void) { in_processes(ranks, closes_streams_before_init); }

/* A file of the program's that is behind every number that Weft's descriptors had. */
static int own_file_everywhere(void) {
    char name[] = "/tmp/weft-process-test.XXXXXX";
    const int file = mkstemp(name);
    int number;
    if (file < 0) return -1;
    unlink(name);
    for (number = own_from; number < own_to; ++number)
        if (number != file) dup2(file, number);
    return file;
}
static int is_own_file_touched(int file) {
    struct stat own, other;
    int number, wrong = 0;
    if (fstat(file, &own) != 0 || own.st_size != 0) return 1;
    for (number = own_from; number < own_to; ++number)
        wrong += fstat(number, &other) != 0 || other.st_ino != own.st_ino;
    return wrong;
}

/* As daemonizing code does. Over shared memory the communicator lives; over TCP it fails, and says why. */
static int closes_everything(int rank, int count, weftUniqueId id) {
    weftComm_t comm = NULL;
    int file, i, wrong = 0;
    if (weftCommInitRank(&comm, count, id, rank)) return 1;
    if (sum_is_wrong(comm, count)) return 2;
    file = own_file_everywhere();
    if (file < 0) return 3;
    for (i = 0; i < 3; ++i) {
        float value = 1;
        weftResult_t result;
        if (rank == 0) pause_ms(120); /* long enough for the others to look who has died */
        result = weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, NULL);
        if (!over_tcp()) wrong += result != weftSuccess || value != (float)count;
        if (over_tcp() && i == 2) wrong += result == weftSuccess;
    }
    if (weftCommDestroy(comm) != weftSuccess && !over_tcp()) ++wrong;
    if (is_own_file_touched(file)) return 4;
    return wrong > 0 ? 5 : 0;
}
static void everything_closed(void) { in_processes(ranks, closes_everything); }

static void memory_is_freed_though_its_segment_was_closed(void) {
    const pid_t child = fork();
    int status = -1;
    if (child == 0) {
        void* shared = NULL;
        int file, number;
        struct stat about;
        char page[4096];
        if (weftHostAlloc(&shared, 8 << 20)) _exit(1);
        memset(shared, 1, 8 << 20);
        file = own_file_everywhere();
        memset(page, 'x', sizeof page);
        for (number = 0; number < 2048; ++number)
            if (write(file, page, sizeof page) != sizeof page) _exit(2);
        if (weftMemFree(shared)) _exit(3);
        if (fstat(file, &about) != 0 || about.st_size != 8 << 20) _exit(4);
        for (number = 0; number < 2048; ++number)
            if (pread(file, page, sizeof page, (off_t)number * 4096) != sizeof page || page[0] != 'x' ||
                page[4095] != 'x')
                _exit(5);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

/* ---- Threads that are cancelled */

struct call {
    pthread_t thread;
    weftComm_t comm;
    weftUniqueId id;
    float* data;
    size_t count;
    weftResult_t result;
    int returned;
};

static void* reduce_and_be_cancelled(void* argument) {
    struct call* call = argument;
    call->result = weftAllReduce(call->data, call->data, call->count, weftFloat, weftSum, call->comm, NULL);
    call->returned = 1;
    pthread_testcancel();
    return NULL;
}

/* The cancellation is pending when the call begins. */
static void* be_cancelled_and_reduce(void* argument) {
    pthread_cancel(pthread_self());
    return reduce_and_be_cancelled(argument);
}

static void* init_and_be_cancelled(void* argument) {
    struct call* call = argument;
    call->result = weftCommInitRank(&call->comm, 2, call->id, 0);
    call->returned = 1;
    pthread_testcancel();
    return NULL;
}

static void* init_other(void* argument) {
    struct call* call = argument;
    call->result = weftCommInitRank(&call->comm, 2, call->id, 1);
    return NULL;
}

static void* reduce_other(void* argument) {
    struct call* call = argument;
    call->result = weftAllReduce(call->data, call->data, call->count, weftFloat, weftSum, call->comm, NULL);
    return NULL;
}

/* Both threads' calls have succeeded, and the one that was cancelled ended after its call. */
static void join_cancelled(struct call* cancelled, struct call* other) {
    void* ended;
    pthread_join(other->thread, NULL);
    pthread_join(cancelled->thread, &ended);
    CHECK(ended == PTHREAD_CANCELED);
    CHECK(cancelled->returned);
    CHECK_CODE(cancelled->result, weftSuccess);
    CHECK_CODE(other->result, weftSuccess);
}

static void cancelled_threads(void) {
    static const size_t counts[] = {2, 1000, 1000000};
    struct call one = {0}, other = {0};
    void* ended;
    size_t i, at;
    /* Blocked while the ranks meet. */
    CHECK_OK(weftGetUniqueId(&one.id));
    other.id = one.id;
    CHECK(pthread_create(&one.thread, NULL, init_and_be_cancelled, &one) == 0);
    pause_ms(80);
    CHECK(pthread_cancel(one.thread) == 0);
    pause_ms(30);
    CHECK(pthread_create(&other.thread, NULL, init_other, &other) == 0);
    join_cancelled(&one, &other);
    if (one.result || other.result) return;
    /* Blocked in a collective, for long enough to have looked for what is wrong. */
    for (i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
        one.count = other.count = counts[i];
        one.data = malloc(counts[i] * sizeof(float)), other.data = malloc(counts[i] * sizeof(float));
        for (at = 0; at < counts[i]; ++at) one.data[at] = other.data[at] = 1;
        one.returned = 0;
        CHECK(pthread_create(&one.thread, NULL, reduce_and_be_cancelled, &one) == 0);
        pause_ms(60);
        CHECK(pthread_cancel(one.thread) == 0);
        pause_ms(60);
        CHECK(pthread_create(&other.thread, NULL, reduce_other, &other) == 0);
        join_cancelled(&one, &other);
        CHECK(one.data[counts[i] - 1] == 2 && other.data[counts[i] - 1] == 2);
        free(one.data), free(other.data);
    }
    /* The process's other ranks know of an error before it is returned. */
    CHECK_OK(weftCommDestroy(other.comm));
    one.data = calloc(2, sizeof(float));
    one.count = 2, one.returned = 0;
    CHECK(pthread_create(&one.thread, NULL, be_cancelled_and_reduce, &one) == 0);
    pthread_join(one.thread, &ended);
    CHECK(ended == PTHREAD_CANCELED);
    CHECK(one.returned);
    CHECK_CODE(one.result, weftRemoteError);
    free(one.data);
    CHECK_OK(weftCommAbort(one.comm));
}

/* ---- Address space */

#ifndef SANITIZED
static int within_a_gibibyte(int rank, int count, weftUniqueId id) {
    const struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    const size_t bytes = elements * sizeof(float);
    weftComm_t comm = NULL;
    void *memory[4], *too_much;
    float* data;
    int i, wrong = 0;
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    if (weftCommInitRank(&comm, count, id, rank)) return 2;
    if (sum_is_wrong(comm, count)) return 3;
    for (i = 0; i < 4; ++i) {
        if (weftHostAlloc(&memory[i], i == 0 ? bytes : (size_t)20 << 20)) return 4;
        memset(memory[i], 0, i == 0 ? bytes : (size_t)20 << 20);
    }
    data = memory[0];
    for (i = 0; i < elements; ++i) data[i] = 1;
    if (weftAllReduce(data, data, elements, weftFloat, weftSum, comm, NULL)) return 5;
    for (i = 0; i < elements; ++i) wrong += data[i] != (float)count;
    if (weftHostAlloc(&too_much, (size_t)950 << 20) != weftSystemError || too_much) return 6;
    for (i = 0; i < 4; ++i)
        if (weftMemFree(memory[i])) return 7;
    if (weftHostAlloc(&memory[0], bytes)) return 8;
    if (weftCommDestroy(comm)) return 9;
    return wrong > 0 ? 10 : 0;
}
static void limited_address_space(void) { in_processes(6, within_a_gibibyte); }
#endif

int main(void) {
    /* Those that fork come first: a child has none of the threads. */
    run_case("output of a program that has closed its standard streams goes into no connection",
             standard_streams_closed_after_init);
    run_case("ranks rendezvous and call without standard streams, too", standard_streams_closed_before_init);
    run_case("after a program has closed all descriptors its own files are left alone", everything_closed);
    run_case("weftMemFree releases memory, not a file that has the segment's number",
             memory_is_freed_though_its_segment_was_closed);
#ifndef SANITIZED
    run_case("ranks rendezvous, call and allocate within 1 GiB of address space, and get an error beyond it",
             limited_address_space);
#endif
    run_case("a thread that is cancelled in a call ends after it, and the communicator lives", cancelled_threads);
    return summary();
}
