// other_nccl.cpp: a process's other libnccl, loaded first: each of its functions ends the process. A program that opens
// Weft's library by path must come there, also through calls from one function of the library to another.
#include <cstdio>
#include <cstdlib>

#include "src/nccl/abi.h"

namespace {
[[noreturn]] void called(const char* name) {
    fprintf(stderr, "the other library's %s was called\n", name);
    _Exit(70);
}
}  // namespace

#pragma GCC diagnostic ignored "-Wunused-parameter"

extern "C" {
#define WEFT_NCCL_FUNCTION(type, name, parameters, arguments) \
    type nccl##name parameters { called("nccl" #name); }      \
    type pnccl##name parameters { called("pnccl" #name); }
#define WEFT_NCCL_UNSUPPORTED(name, parameters, arguments, remedy) \
    WEFT_NCCL_FUNCTION(ncclResult_t, name, parameters, arguments)
#include "src/nccl/functions.def"
}
