#include "src/launchers/mpi_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace weft::internal {

namespace {

// The loaded libraries with names such as libmpi.so.12, libmpi.so.40, libmpich.so.12 and libmpi_abi.so.
std::vector<std::string> loaded_mpi_libraries() {
    std::vector<std::string> names;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* to) {
            const std::string path = info->dlpi_name;
            if (path.compare(path.rfind('/') + 1, 6, "libmpi") == 0)
                static_cast<std::vector<std::string>*>(to)->push_back(path);
            return 0;
        },
        &names);
    return names;
}

// Empty if the library has no such function.
std::optional<bool> asked(void* library, const char* function) {
    int flag = 0;
    const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(library, function));
    if (!ask || ask(&flag) != 0) return {};
    return flag != 0;
}

// Both may be called at any time, also before MPI_Init and after MPI_Finalize.
MpiState state_of(void* library) {
    const auto initialized = asked(library, "MPI_Initialized");
    if (!initialized) return MpiState::absent;
    if (asked(library, "MPI_Finalized").value_or(false)) return MpiState::finalized;
    return *initialized ? MpiState::initialized : MpiState::loaded;
}

}  // namespace

MpiState mpi_state() {
    MpiState state = state_of(RTLD_DEFAULT);  // one that is linked into the program
    for (const std::string& name : loaded_mpi_libraries()) {
        if (state == MpiState::initialized || state == MpiState::finalized) break;
        if (void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
            state = std::max(state, state_of(library));
            dlclose(library);
        }
    }
    return state;
}

}  // namespace weft::internal
