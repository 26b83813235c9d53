// mpi_library.hpp: whether an MPI library lives in this process, and has begun. Weft neither needs nor loads one.
#pragma once

namespace weft::internal {

enum class MpiState { absent, loaded, initialized, finalized };

// Loaded: and not initialized yet. Reentrant; asks whatever libmpi is loaded, also by dlopen with RTLD_LOCAL.
MpiState mpi_state();

}  // namespace weft::internal
