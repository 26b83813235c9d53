/* users_reduction.c: the product of complex numbers over the ranks, by a user-defined function.
 * An element is never split, so a struct of 8 bytes can be sent as one element of type weftUint64.
 *
 * weft run -n 4 ./users_reduction */
#include <string.h>

#include "check.h"

enum { numbers = 1000 };

typedef struct {
    float real, imaginary;
} Complex;

/* Combines `count` elements. The library chooses the elements and the pieces of each call. */
static void multiply(const void* left, const void* right, void* result, size_t count, weftDataType_t datatype,
                     void* context) {
    const Complex *a = left, *b = right;
    size_t i;
    (void)datatype;
    for (i = 0; i < count; ++i) {
        const Complex product = {a[i].real * b[i].real - a[i].imaginary * b[i].imaginary,
                                 a[i].real * b[i].imaginary + a[i].imaginary * b[i].real};
        ((Complex*)result)[i] = product; /* result may alias left or right: both have been read */
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

    /* The function receives the context at each call. 1: products of numbers commute.
     * Products of matrices do not: with 0, the ranks' contributions keep rank order. */
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
