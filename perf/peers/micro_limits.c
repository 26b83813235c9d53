/* micro_limits.c: the limits of single operations: copies, a cache line between two cores, futexes, TCP over loopback. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "limits.h"

/* Each limit is two threads or processes, `side` 0 and 1, and returns the time of one operation on side 0. */
enum { COPY = 256 << 20, CHUNK = 256 << 10 };
static char *copy_src, *copy_dst;
static int streams[2][2];
static atomic_int line;

static void memcpy_part(int side, int parts) {
    size_t part = COPY / (size_t)parts;
    memcpy(copy_dst + part * (size_t)side, copy_src + part * (size_t)side, part);
}
static void read_all(int fd, char* p, size_t n) {
    while (n) {
        ssize_t k = read(fd, p, n);
        if (k <= 0) exit(1);
        n -= (size_t)k;
    }
}
static void write_all(int fd, const char* p, size_t n) {
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k <= 0) exit(1);
        n -= (size_t)k;
    }
}
static void futex(atomic_int* f, int op, int value) { syscall(SYS_futex, f, op, value, NULL, NULL, 0); }

enum { TURNS = 20000 };
/* Body of thread `side` for each micro limit. */
static void micro_memcpy1(int side) {
    if (side == 0) memcpy_part(0, 1);
}
static void micro_memcpy2(int side) { memcpy_part(side & 1, 2); }
static void micro_cacheline(int side) {
    for (int i = 0; i < TURNS; i++) {
        while ((atomic_load_explicit(&line, memory_order_acquire) & 1) != side) _mm_pause();
        atomic_fetch_add_explicit(&line, 1, memory_order_release);
    }
}
static void micro_futex(int side) {
    for (int i = 0; i < TURNS / 10; i++) {
        for (int seen; ((seen = atomic_load(&line)) & 1) != side;) futex(&line, FUTEX_WAIT_PRIVATE, seen);
        atomic_fetch_add(&line, 1);
        futex(&line, FUTEX_WAKE_PRIVATE, 1);
    }
}
static void micro_tcp_pingpong(int side) {
    char b[8] = {0};
    for (int i = 0; i < TURNS / 10; i++) {
        if (side == 0) write_all(streams[0][0], b, 8);
        read_all(streams[0][side], b, 8);
        if (side == 1) write_all(streams[0][1], b, 8);
    }
}
/* Sides 0 and 2 receive, 1 and 3 send. */
static void stream_part(int side, size_t bytes) {
    static char buffer[4][CHUNK];
    for (size_t done = 0; done < bytes; done += CHUNK)
        if (side & 1)
            write_all(streams[side / 2][1], buffer[side], CHUNK);
        else
            read_all(streams[side / 2][0], buffer[side], CHUNK);
}
static void micro_tcp1(int side) { stream_part(side, COPY); }
static void micro_tcp2(int side) { stream_part(side, COPY / 2); }
static pid_t victim;
static void micro_vm_readv(int side) {
    if (side) return;
    for (size_t done = 0; done < COPY; done += 4 * CHUNK) {
        struct iovec l = {copy_dst + done, 4 * CHUNK}, r = {copy_src + done, 4 * CHUNK};
        if (process_vm_readv(victim, &l, 1, &r, 1, 0) < 0) {
            perror("process_vm_readv");
            return;
        }
    }
}

static const struct micro {
    const char* name;
    void (*run)(int side);
    int threads;
    size_t bytes;
    double operations; /* in one run */
} micros[] = {
    {"memcpy_1_thread", micro_memcpy1, 1, COPY, 1},
    {"memcpy_2_threads", micro_memcpy2, 2, COPY, 1},
    {"cache_line_one_way", micro_cacheline, 2, 64, 2.0 * TURNS},
    {"futex_wake_one_way", micro_futex, 2, 4, 0.2 * TURNS},
    {"process_vm_readv", micro_vm_readv, 1, COPY, 1},
    {"tcp_8B_one_way", micro_tcp_pingpong, 2, 8, 0.2 * TURNS},
    {"tcp_1_stream", micro_tcp1, 2, COPY, 1},
    {"tcp_2_streams", micro_tcp2, 4, COPY, 1},
};
static const struct micro* current;
static void* micro_thread(void* side) {
    current->run((int)(intptr_t)side);
    return NULL;
}

void micro(double seconds) {
    copy_src = malloc(COPY);
    copy_dst = malloc(COPY);
    memset(copy_src, 1, COPY);
    memset(copy_dst, 2, COPY);
    tcp_pair(streams[0]);
    tcp_pair(streams[1]);
    if ((victim = fork()) == 0) {
        for (size_t i = 0; i < COPY; i += 4096) copy_src[i]++;
        pause();
        _exit(0);
    }
    sleep(1); /* the victim gets pages of its own */
    for (size_t m = 0; m < sizeof micros / sizeof *micros; m++) {
        double times[200], end = now_us() + seconds * 2e6;
        int iters = 0;
        current = &micros[m];
        while (iters < 200 && (iters < 5 || now_us() < end)) {
            pthread_t t[4];
            double start = now_us();
            for (int s = 1; s < current->threads; s++) pthread_create(&t[s], NULL, micro_thread, (void*)(intptr_t)s);
            current->run(0);
            for (int s = 1; s < current->threads; s++) pthread_join(t[s], NULL);
            times[iters++] = (now_us() - start) / current->operations;
        }
        qsort(times, (size_t)iters, sizeof *times, ascending);
        emit(current->name, current->threads, current->bytes, times[iters / 2], times[0], iters, 1, "micro");
    }
    kill(victim, SIGTERM);
    waitpid(victim, NULL, 0);
}

/* The least of a few short runs on the first two ranks' cores.
 * It shows whether the cores of a virtual machine share a cache at the moment. */
static pthread_barrier_t both;
static double line_times[2];
static void* line_side(void* number) {
    int side = (int)(intptr_t)number;
    run_on(side);
    pthread_barrier_wait(&both);
    double start = now_us();
    micro_cacheline(side);
    line_times[side] = (now_us() - start) * 1e3 / (2.0 * TURNS);
    return NULL;
}
void print_line_ns(void) {
    double best = 0;
    if (allowed_count < 2) return;
    pthread_barrier_init(&both, NULL, 2);
    for (int i = 0; i < 5; i++) {
        pthread_t other;
        pthread_create(&other, NULL, line_side, (void*)1);
        line_side((void*)0);
        pthread_join(other, NULL);
        if (i == 0 || line_times[0] < best) best = line_times[0];
    }
    printf("%.0f\n", best);
}
