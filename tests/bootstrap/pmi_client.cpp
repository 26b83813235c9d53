// pmi_client.cpp: a process that takes its id from PMI and ends: pmi_client PMI_FD plain|mpi|fork LIBMPI. `mpi`: an MPI
// is initialised later; `fork`: a child ends before it. Or `pmi_client communicators`: makes two from the environment
// that are there at once, then one more, and sums on each.
#include <dlfcn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "src/launchers/pmi.hpp"
#include "weft/weft.h"

namespace {

int failed(const char* call) {
    fprintf(stderr, "%s: %s\n", call, weftGetLastError(nullptr));
    return 1;
}

int use_communicators() {
    weftComm_t comms[3] = {};
    for (int index = 0; index < 3; ++index) {
        // The third in place of the first.
        if (index == 2 && weftCommDestroy(comms[0]) != weftSuccess) return failed("weftCommDestroy");
        if (weftCommInitFromEnvironment(&comms[index], nullptr) != weftSuccess)
            return failed("weftCommInitFromEnvironment");
        for (int used = index == 2 ? 1 : 0; used <= index; ++used) {
            int ranks = 0, sum = 1;
            if (weftCommCount(comms[used], &ranks) != weftSuccess ||
                weftAllReduce(&sum, &sum, 1, weftInt32, weftSum, comms[used], nullptr) != weftSuccess)
                return failed("weftAllReduce");
            if (sum != ranks) return 3;
        }
    }
    for (const int index : {1, 2})
        if (weftCommDestroy(comms[index]) != weftSuccess) return failed("weftCommDestroy");
    return 0;
}

}  // namespace

int main(int, char** arguments) {
    if (std::string(arguments[1]) == "communicators") return use_communicators();
    const std::string mode = arguments[2];
    const weft::internal::IdExchange exchange{0, 1, std::string(256, 'a'), weft::internal::Deadline::in_ms(60'000)};
    const auto shared = weft::internal::exchange_by_pmi(std::atoi(arguments[1]), "", exchange);
    if (!shared || shared->text != exchange.text) return 1;
    if (mode == "mpi") {
        void* library = dlopen(arguments[3], RTLD_NOW | RTLD_LOCAL);
        if (!library) return 2;
        reinterpret_cast<void (*)(int, int)>(dlsym(library, "fake_mpi_set"))(1, 0);
    }
    if (mode == "fork") {
        if (const pid_t child = fork(); child == 0) {
            exit(0);  // runs what is left for the end of a process
        } else {
            waitpid(child, nullptr, 0);
        }
    }
    return 0;
}
