/* machine.c: the clock, the report, the sockets and the cores of the program `limits`. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"

double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int ascending(const void* a, const void* b) {
    double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

void emit(const char* name, int n, size_t bytes, double median, double min, int iters, int ok, const char* what) {
    printf(
        "{\"peer\":\"limit\",\"version\":\"%s\",\"collective\":\"%s\",\"nranks\":%d,\"bytes\":%zu,\"median_us\":%.3f,"
        "\"min_us\":%.3f,\"iters\":%d,\"ok\":%s}\n",
        what, name, n, bytes, median, min, iters, ok ? "true" : "false");
    fflush(stdout);
}

void tcp_pair(int fd[2]) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr*)&a, sizeof a) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr*)&a, &length) || connect(fd[0], (struct sockaddr*)&a, sizeof a)) {
        perror("tcp");
        exit(1);
    }
    fd[1] = accept(listener, NULL, NULL);
    for (int i = 0; i < 2; i++) setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

int allowed_count;
static int allowed[CPU_SETSIZE];
void find_allowed(void) {
    cpu_set_t all;
    CPU_ZERO(&all);
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) allowed[allowed_count++] = cpu;
    if (allowed_count == 0) allowed_count = 1; /* there are more than the set holds: use the first */
}

void run_on(int place) {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(allowed[place % allowed_count], &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
}
