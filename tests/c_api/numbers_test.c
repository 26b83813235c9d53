/* numbers_test.c: results do not depend on the floating-point mode of the callers' threads, which stays as it is; and
 * averages do not overflow. Four threads as ranks. */
#include "check.h"

#include <pthread.h>
#include <stdint.h>

enum { ranks = 4, most = 40000, types = 6, operations = 5, sizes = 2 };
enum { usual, flushing, upward, toward_zero }; /* modes, one for each rank */

#if defined(__x86_64__)
#include <xmmintrin.h>
/* The last one traps all exceptions, too. */
static const unsigned words[] = {0x1f80, 0x9fc0, 0x5f80, 0x6000};
static unsigned long mode_word(void) { return _mm_getcsr() & ~0x3fu; }
static void set_mode(int mode) { _mm_setcsr(words[mode]); }
#elif defined(__aarch64__)
static const unsigned long words[] = {0, 1ul << 24, 1ul << 22, 3ul << 22};
static unsigned long mode_word(void) {
    unsigned long word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
static void set_mode(int mode) { __asm__ volatile("msr fpcr, %0" ::"r"(words[mode])); }
#else
static const unsigned long words[4];
static unsigned long mode_word(void) { return 0; }
static void set_mode(int mode) { (void)mode; }
#endif

struct format {
    weftDataType_t type;
    int bytes, fraction; /* bits of the fraction */
    uint64_t large;      /* the bits of a number whose double is none */
};
static const struct format formats[types] = {{weftFloat16, 2, 10, 0x78e2},     {weftBfloat16, 2, 7, 0x7f40},
                                             {weftFloat32, 4, 23, 0x7f167699}, {weftFloat64, 8, 52, 0x7fe8000000000000},
                                             {weftFloat8e4m3, 1, 3, 0x7c},     {weftFloat8e5m2, 1, 2, 0x7a}};

struct rank_thread {
    pthread_t thread;
    weftUniqueId id;
    int rank, mode;
    int foreign_calls; /* of the function, in a mode that is not Weft's */
};
static unsigned char results[ranks][types][operations][sizes][most * 8];

static uint64_t draw(uint64_t* state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 16 ^ *state << 24;
}
/* Numbers below 2, each second one subnormal: neither infinities nor NaN come of them. */
static void fill(unsigned char* bytes, const struct format* format, int count, int rank) {
    uint64_t state = (uint64_t)(rank + 1) * 77;
    int i;
    for (i = 0; i < count; ++i) {
        const uint64_t sign = 1ull << (8 * format->bytes - 1), fractions = (1ull << format->fraction) - 1;
        const uint64_t bits = draw(&state) & (i % 2 ? sign | fractions : sign | (sign / 2 - 1));
        memcpy(bytes + (size_t)i * (size_t)format->bytes, &bits, (size_t)format->bytes);
    }
}

/* The product of single precision. */
static void multiply(const void* left, const void* right, void* result, size_t count, weftDataType_t type,
                     void* context) {
    struct rank_thread* self = context;
    const float *a = left, *b = right;
    float* to = result;
    size_t i;
    (void)type;
    for (i = 0; i < count; ++i) to[i] = a[i] * b[i];
    self->foreign_calls += mode_word() != words[usual];
}

static weftRedOp_t made(struct rank_thread* self, const struct format* format, int operation, weftComm_t comm) {
    /* 0.75, in each format: the exponent of a half, and the first bit of the fraction. */
    uint64_t exponent_of_one = ((1ull << (8 * format->bytes - 2)) - 1) >> format->fraction;
    uint64_t scalar = (exponent_of_one - 1) << format->fraction | 1ull << (format->fraction - 1);
    weftRedOp_t op = weftSum;
    if (operation == 3)
        CHECK_OK(weftRedOpCreatePreMulSum(&op, &scalar, format->type, weftScalarHostImmediate, comm));
    else if (operation == 4 && format->type == weftFloat32)
        CHECK_OK(weftRedOpCreate(&op, multiply, self, weftFloat32, 1, comm));
    else
        op = operation == 1 ? weftProd : operation == 2 ? weftAvg : weftSum;
    return op;
}

static void* reduce_all(void* argument) {
    struct rank_thread* self = argument;
    unsigned char* input = malloc(most * 8);
    weftComm_t comm = NULL;
    int type, operation, size;
    set_mode(self->mode);
    CHECK_OK(weftCommInitRank(&comm, ranks, self->id, self->rank));
    CHECK(mode_word() == words[self->mode]);
    for (type = 0; type < types; ++type) {
        fill(input, &formats[type], most, self->rank);
        for (operation = 0; operation < operations; ++operation) {
            const weftRedOp_t op = made(self, &formats[type], operation, comm);
            for (size = 0; size < sizes; ++size) {
                const size_t count = size ? most : 3;
                CHECK_OK(weftAllReduce(input, results[self->rank][type][operation][size], count, formats[type].type, op,
                                       comm, NULL));
                CHECK(mode_word() == words[self->mode]);
            }
            if (op >= weftNumOps) CHECK_OK(weftRedOpDestroy(op, comm));
        }
    }
    CHECK_CODE(weftAllReduce(input, input, 3, weftFloat32, weftSum, NULL, NULL), weftInvalidArgument);
    CHECK(mode_word() == words[self->mode]);
    CHECK_CODE(weftAllReduce(NULL, input, 3, weftFloat32, weftSum, comm, NULL), weftInvalidArgument);
    CHECK(mode_word() == words[self->mode]);
    CHECK_OK(weftCommDestroy(comm));
    CHECK(mode_word() == words[self->mode]);
    free(input);
    return NULL;
}

static void run_ranks(struct rank_thread* all, void* (*body)(void*)) {
    int rank;
    CHECK_OK(weftGetUniqueId(&all[0].id));
    for (rank = 0; rank < ranks; ++rank) {
        all[rank].id = all[0].id;
        all[rank].rank = rank;
        CHECK(pthread_create(&all[rank].thread, NULL, body, &all[rank]) == 0);
    }
    for (rank = 0; rank < ranks; ++rank) pthread_join(all[rank].thread, NULL);
}

static void modes(void) {
    static unsigned char expected[types][operations][sizes][most * 8];
    struct rank_thread all[ranks] = {0};
    int rank, type, operation, size;
    memset(results, 0, sizeof results);
    run_ranks(all, reduce_all);
    memcpy(expected, results[0], sizeof expected);
    for (rank = 0; rank < ranks; ++rank) all[rank].mode = rank;
    memset(results, 0, sizeof results);
    run_ranks(all, reduce_all);
    for (rank = 0; rank < ranks; ++rank) {
        CHECK(all[rank].foreign_calls == 0);
        for (type = 0; type < types; ++type)
            for (operation = 0; operation < operations; ++operation)
                for (size = 0; size < sizes; ++size)
                    CHECK(memcmp(results[rank][type][operation][size], expected[type][operation][size],
                                 sizeof expected[0][0][0]) == 0);
    }
}

static void* average_all(void* argument) {
    struct rank_thread* self = argument;
    unsigned char *input = malloc(most * 8), *result = malloc(most * 8);
    weftComm_t comm = NULL;
    int type, i;
    size_t count;
    CHECK_OK(weftCommInitRank(&comm, ranks, self->id, self->rank));
    for (type = 0; type < types; ++type) {
        const size_t bytes = (size_t)formats[type].bytes;
        for (i = 0; i < most; ++i) memcpy(input + (size_t)i * bytes, &formats[type].large, bytes);
        for (count = 3; count <= most; count += most - 3) {
            memset(result, 0, most * 8);
            CHECK_OK(weftAllReduce(input, result, count, formats[type].type, weftAvg, comm, NULL));
            CHECK(memcmp(input, result, count * bytes) == 0);
            CHECK_OK(weftReduceScatter(input, result, count / ranks, formats[type].type, weftAvg, comm, NULL));
            CHECK(memcmp(input, result, count / ranks * bytes) == 0);
        }
    }
    CHECK_OK(weftCommDestroy(comm));
    free(input), free(result);
    return NULL;
}

static void averages(void) {
    struct rank_thread all[ranks] = {0};
    run_ranks(all, average_all);
}

int main(void) {
    run_case("results do not depend on the floating-point mode of a rank's thread, which keeps it", modes);
    run_case("the average of equal large numbers is that number", averages);
    return summary();
}
