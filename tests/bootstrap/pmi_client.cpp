// pmi_client.cpp: a process that takes its id from PMI and ends: pmi_client PMI_FD plain|mpi|fork LIBMPI. `mpi`: an MPI
// is initialised later; `fork`: a child ends before it.
#include <dlfcn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "src/bootstrap/pmi.hpp"

int main(int, char** arguments) {
    const std::string mode = arguments[2];
    const weft::Sharing sharing{0, 1, std::string(256, 'a'), weft::Deadline::in_ms(60'000)};
    const auto shared = weft::share_by_pmi(std::atoi(arguments[1]), "", sharing);
    if (!shared || shared->text != sharing.text) return 1;
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
