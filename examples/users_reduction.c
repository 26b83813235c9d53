/* users_reduction.c: the product of complex numbers over the ranks, by a function of one's own. An element is never cut
 * in two, so what fits into 8 bytes can travel as one element of type weftUint64.
 *
 *     weft run -n 4 ./users_reduction */
#include <string.h>

#include "check.h"

enum { numbers = 1000 };

typedef struct {
    float real, imaginary;
} Complex;

/* Combines `count` elements at once, as they come: which ones, and in which pieces, is the library's choice. */
static void multiply(const void* left, const void* right, void* result, size_t count, weftDataType_t datatype,
                     void* context) {
    const Complex *a = left, *b = right;
    size_t i;
    (void)datatype;
    for (i = 0; i < count; ++i) {
        const Complex product = {a[i].real * b[i].real - a[i].imaginary * b[i].imaginary,
                                 a[i].real * b[i].imaginary + a[i].imaginary * b[i].real};
        ((Complex*)result)[i] = product; /* result may be left or right: both have been read */
    }
    *(size_t*)context += count;
}

int main(void) {
    weftComm_t comm;
    weftRedOp_t product;
    Complex mine[numbers], all[numbers];
    size_t combined = 0;
    int rank, ranks, i;

    CHECK(weftCommInitFromEnvironment(&comm, NULL));
    CHECK(weftCommUserRank(comm, &rank));
    CHECK(weftCommCount(comm, &ranks));

    /* Quarter turns: number i of rank r turns by i + r quarters. */
    for (i = 0; i < numbers; ++i) {
        const Complex turns[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
        mine[i] = turns[(i + rank) % 4];
    }

    /* The function is given the context at each call. 1: products of numbers commute; of matrices they would not, and
     * with 0 the ranks' contributions would stay in rank order. */
    CHECK(weftRedOpCreate(&product, multiply, &combined, weftUint64, 1, comm));
    CHECK(weftAllReduce(mine, all, numbers, weftUint64, product, comm, NULL));
    CHECK(weftRedOpDestroy(product, comm));

    for (i = 0; i < numbers; ++i) {
        const int quarters = (ranks * i + ranks * (ranks - 1) / 2) % 4;
        EXPECT(all[i].real == (quarters == 0 ? 1.0f : quarters == 2 ? -1.0f : 0.0f));
        EXPECT(all[i].imaginary == (quarters == 1 ? 1.0f : quarters == 3 ? -1.0f : 0.0f));
    }
    if (rank == 0)
        printf("%d products over %d ranks are right; this rank combined %d pairs\n", numbers, ranks, (int)combined);
    CHECK(weftCommDestroy(comm));
    return 0;
}
