/* beside_test.c: libweft, loaded by dlopen as a framework's plugin loads it, in a process that already has other copies
 * of what it uses. Arguments: the library of impostors, or a real libcrypto, then libweft, an algorithm in XML for 4
 * ranks. */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>

enum { ranks = 4, skipped = 77 };

static const char *other, *library, *algorithm;

#define LOAD(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(weft, #name)

static void call_the_library(int rounds) {
    weftComm_t comms[ranks];
    int values[ranks][ranks], rank, round;
    void* weft;
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
        for (round = 0; round < rounds; ++round) {
            CHECK(p_weftGroupStart() == weftSuccess);
            for (rank = 0; rank < ranks; ++rank) {
                int i;
                for (i = 0; i < ranks; ++i) values[rank][i] = rank + i;
                CHECK(p_weftAllReduce(values[rank], values[rank], ranks, weftInt32, weftSum, comms[rank], NULL) ==
                      weftSuccess);
            }
            CHECK(p_weftGroupEnd() == weftSuccess);
            for (rank = 0; rank < ranks; ++rank) CHECK(values[rank][3] == 6 + 3 * ranks);
        }
        CHECK(p_weftAllReduce(values, values, 1, (weftDataType_t)99, weftSum, comms[0], NULL) == weftInvalidArgument);
        CHECK_TEXT(p_weftGetLastError(comms[0]), "datatype is 99");
        for (rank = 0; rank < ranks; ++rank) CHECK(p_weftCommDestroy(comms[rank]) == weftSuccess);
    }
}

static void works_beside_impostors(void) {
    CHECK(dlopen(other, RTLD_NOW | RTLD_GLOBAL) != NULL);
    call_the_library(1);
}

/* Of libcrypto what the test calls, as OpenSSL 3 declares it. */
static unsigned long (*version_num)(void);
static const void* (*sha256)(void);
static int (*digest)(const void* data, size_t bytes, unsigned char* result, unsigned* length, const void* type,
                     void* engine);

/* FIPS 180-4's example, of "abc". */
static int digest_is_right(void) {
    static const unsigned char expected[32] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
                                               0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
                                               0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    unsigned char result[64];
    unsigned length = 0;
    return digest("abc", 3, result, &length, sha256(), NULL) == 1 && length == sizeof expected &&
           memcmp(result, expected, sizeof expected) == 0;
}

static int library_is_done, digests_made, digests_wrong;

static void* digest_meanwhile(void* nothing) {
    do {
        digests_wrong += !digest_is_right();
        __atomic_fetch_add(&digests_made, 1, __ATOMIC_RELAXED);
    } while (!__atomic_load_n(&library_is_done, __ATOMIC_RELAXED));
    return nothing;
}

static void works_beside_libcrypto(void) {
    pthread_t thread;
    const unsigned long version = version_num();
    int before;
    CHECK(version >> 28 == 3);
    CHECK(digest_is_right());
    CHECK(pthread_create(&thread, NULL, digest_meanwhile, NULL) == 0);
    while (__atomic_load_n(&digests_made, __ATOMIC_RELAXED) == 0) continue;
    before = __atomic_load_n(&digests_made, __ATOMIC_RELAXED);
    call_the_library(200);
    CHECK(__atomic_load_n(&digests_made, __ATOMIC_RELAXED) > before);
    __atomic_store_n(&library_is_done, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(digests_wrong == 0);
    CHECK(digest_is_right());
    CHECK(version_num() == version);
}

int main(int count, char** arguments) {
    if (count != 4) return 2;
    other = arguments[1];
    library = arguments[2];
    algorithm = arguments[3];
    if (strcmp(other, "libcrypto.so.3") == 0) {
        void* const crypto = dlopen(other, RTLD_NOW | RTLD_GLOBAL);
        if (!crypto) {
            printf("skipped: no libcrypto.so.3 here: %s\n", dlerror());
            return skipped;
        }
        version_num = (__typeof__(version_num))dlsym(crypto, "OpenSSL_version_num");
        sha256 = (__typeof__(sha256))dlsym(crypto, "EVP_sha256");
        digest = (__typeof__(digest))dlsym(crypto, "EVP_Digest");
        if (!version_num || !sha256 || !digest) return 3;
        run_case("libweft, loaded by dlopen, and OpenSSL's libcrypto work beside each other", works_beside_libcrypto);
    } else {
        run_case("libweft, loaded by dlopen, works beside other copies of the libraries that it uses",
                 works_beside_impostors);
    }
    return summary();
}
