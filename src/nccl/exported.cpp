// exported.cpp: the weak spelling of each function of functions.def, and both spellings of those that Weft lacks.
#include "src/nccl/abi.h"
#include "src/nccl/last_error.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

extern "C" {

#define WEFT_NCCL_FUNCTION(type, name, parameters, arguments) \
    __attribute__((weak)) type nccl##name parameters { return pnccl##name arguments; }
#define WEFT_NCCL_UNSUPPORTED(name, parameters, arguments, remedy)                                                 \
    ncclResult_t pnccl##name parameters { return weft::internal::nccl::refuse_unsupported("nccl" #name, remedy); } \
    __attribute__((weak)) ncclResult_t nccl##name parameters { return pnccl##name arguments; }
#include "src/nccl/functions.def"
#undef WEFT_NCCL_FUNCTION
#undef WEFT_NCCL_UNSUPPORTED

void ncclResetDebugInitInternal(void) {}
}

#pragma GCC diagnostic pop
