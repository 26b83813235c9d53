/* A user's program: prints the version of the installed library, and sums over one rank. */
#include <stdio.h>
#include <weft/weft.h>

int main(void) {
    int version = 0;
    weftUniqueId id;
    weftComm_t comm = NULL;
    float value = 2, sum = 0;
    if (weftGetVersion(&version) != weftSuccess || weftGetUniqueId(&id) != weftSuccess) return 1;
    if (weftCommInitRank(&comm, 1, id, 0) != weftSuccess ||
        weftAllReduce(&value, &sum, 1, weftFloat32, weftSum, comm, NULL) != weftSuccess || sum != value ||
        weftCommDestroy(comm) != weftSuccess) {
        fprintf(stderr, "%s\n", weftGetLastError(NULL));
        return 1;
    }
    printf("%d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return 0;
}
