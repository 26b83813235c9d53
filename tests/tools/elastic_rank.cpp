// elastic_rank.cpp FAILING: a rank of an elastic job. Ranks of the list, as in 12, end with status 7 after a barrier. The
// others call barriers until one fails. Passes if there are two ranks.
#include <unistd.h>
#include <weft/weft.h>

#include <cstdlib>
#include <cstring>

int main(int, char** arguments) {
    const char* const rank = std::getenv("WEFT_RANK");
    if (std::strcmp(std::getenv("WEFT_SIZE"), "2") == 0) return 0;
    weftComm_t comm = nullptr;
    if (weftCommInitFromEnvironment(&comm, nullptr) != weftSuccess || weftBarrier(comm, nullptr) != weftSuccess)
        return 9;
    if (std::strstr(arguments[1], rank)) _exit(7);  // without a word to the others
    while (weftBarrier(comm, nullptr) == weftSuccess) {
    }
    return 1;
}
