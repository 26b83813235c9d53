/* limits.h: the parts of the program `limits`: time, report, sockets and cores (machine.c), and the limits of single
 * operations (micro_limits.c). */
#ifndef LIMITS_H
#define LIMITS_H
#include <stddef.h>

double now_us(void);
int ascending(const void* a, const void* b); /* of two doubles, for qsort */
/* Prints one JSON line of peer "limit". */
void emit(const char* name, int n, size_t bytes, double median, double min, int iters, int ok, const char* what);
/* Two connected TCP sockets over loopback. */
void tcp_pair(int fd[2]);

/* The processors on which this process may run: call it before any rank is bound. */
void find_allowed(void);
extern int allowed_count;
/* Binds the calling thread to one of them. */
void run_on(int place);

void micro(double seconds);
void print_line_ns(void);

#endif
