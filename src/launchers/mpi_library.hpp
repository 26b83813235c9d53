// mpi_library.hpp: whether an MPI library is loaded in this process, and initialized. Weft neither needs nor loads one.
#pragma once

namespace weft::internal {

enum class MpiState { absent, loaded, initialized, finalized };

// `loaded`: not initialized yet. Reentrant; finds every loaded libmpi, also one of dlopen with RTLD_LOCAL.
MpiState mpi_state();

}  // namespace weft::internal
