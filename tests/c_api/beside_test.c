/* beside_test.c: libweft, loaded by dlopen as a framework's plugin loads it, in a process that already has other copies
 * of what it uses. Arguments: the library of impostors, libweft, an algorithm in XML for 4 ranks. */
#include "check.h"

#include <dlfcn.h>

enum { ranks = 4 };

static const char *impostors, *library, *algorithm;

#define LOAD(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(weft, #name)

static void works_beside_others(void) {
    weftComm_t comms[ranks];
    int values[ranks][ranks], rank;
    void* weft;
    CHECK(dlopen(impostors, RTLD_NOW | RTLD_GLOBAL) != NULL);
    setenv("WEFT_TRANSPORTS", "tcp", 1); /* each rank a host: handshakes prove a secret */
    setenv("WEFT_ALGO_FILES", algorithm, 1);
    weft = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(weft != NULL);
    if (!weft) return;
    {
        LOAD(weftCommInitAll);
        LOAD(weftGroupStart);
        LOAD(weftGroupEnd);
        LOAD(weftAllReduce);
        LOAD(weftCommDestroy);
        LOAD(weftGetLastError);
        CHECK(p_weftCommInitAll && p_weftGroupStart && p_weftGroupEnd && p_weftAllReduce && p_weftCommDestroy &&
              p_weftGetLastError);
        CHECK(p_weftCommInitAll(comms, ranks, NULL) == weftSuccess);
        CHECK(p_weftGroupStart() == weftSuccess);
        for (rank = 0; rank < ranks; ++rank) {
            int i;
            for (i = 0; i < ranks; ++i) values[rank][i] = rank + i;
            CHECK(p_weftAllReduce(values[rank], values[rank], ranks, weftInt32, weftSum, comms[rank], NULL) ==
                  weftSuccess);
        }
        CHECK(p_weftGroupEnd() == weftSuccess);
        for (rank = 0; rank < ranks; ++rank) CHECK(values[rank][3] == 6 + 3 * ranks);
        CHECK(p_weftAllReduce(values, values, 1, (weftDataType_t)99, weftSum, comms[0], NULL) == weftInvalidArgument);
        CHECK_TEXT(p_weftGetLastError(comms[0]), "datatype is 99");
        for (rank = 0; rank < ranks; ++rank) CHECK(p_weftCommDestroy(comms[rank]) == weftSuccess);
    }
}

int main(int count, char** arguments) {
    if (count != 4) return 2;
    impostors = arguments[1];
    library = arguments[2];
    algorithm = arguments[3];
    run_case("libweft, loaded by dlopen, works beside other copies of what it uses", works_beside_others);
    return summary();
}
