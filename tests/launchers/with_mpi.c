/* with_mpi.c: a program that uses MPI and Weft: with_mpi LIBMPI mpi-first|weft-first. MPI is loaded, so that this builds
 * without one; MPI_Init, MPI_Finalize and MPI_Initialized are called alike in every ABI. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "weft/weft.h"

static int sum_over_weft(void) {
    weftComm_t comm;
    float value = 1;
    int ranks = 0;
    weftResult_t result = weftCommInitFromEnvironment(&comm, NULL);
    if (result == weftSuccess) result = weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, NULL);
    if (result == weftSuccess) result = weftCommCount(comm, &ranks);
    if (result == weftSuccess) result = weftCommDestroy(comm);
    if (result != weftSuccess) fprintf(stderr, "with_mpi: %s\n", weftGetLastError(NULL));
    return result == weftSuccess && ranks > 1 && value == (float)ranks;
}

int main(int count, char** arguments) {
    if (count != 3) return 2;
    const int mpi_first = strcmp(arguments[2], "mpi-first") == 0;
    void* mpi = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    if (!mpi) return fprintf(stderr, "with_mpi: %s\n", dlerror()), 2;
    int (*init)(int*, char***) = (int (*)(int*, char***))dlsym(mpi, "MPI_Init");
    int (*finalize)(void) = (int (*)(void))dlsym(mpi, "MPI_Finalize");
    if (mpi_first && init(NULL, NULL) != 0) return 3;
    if (!sum_over_weft()) return 4;
    if (!mpi_first && init(NULL, NULL) != 0) return 3;
    if (finalize() != 0) return 3;
    printf("both work\n");
    return 0;
}
