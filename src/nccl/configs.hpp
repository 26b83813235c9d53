// configs.hpp: reads the structs with a size, a magic number and a version that callers pass.
// A caller's struct may be shorter than this library's, and may end with fields that its version does not define.
#pragma once
#include <weft/weft.h>

#include <algorithm>
#include <cstring>

#include "src/nccl/abi.h"
#include "src/nccl/last_error.hpp"

namespace weft::internal::nccl {

// Copies the fields that the caller's struct has over those of `known`, which holds the defaults.
// False: the struct was not initialised.
template <class Struct>
bool read_struct(const Struct& given, unsigned magic, Struct& known) {
    if (given.magic != magic || given.size < offsetof(Struct, version) + sizeof given.version) return false;
    std::memcpy(static_cast<void*>(&known), &given, std::min(given.size, sizeof known));
    return true;
}

// Writes the settings that Weft has to `config`; those that it lacks are named in the log at INFO.
// given  of ncclCommInitRankConfig, ncclCommSplit or ncclCommShrink; not null
ncclResult_t read_config(const char* function, const ncclConfig_t& given, weftConfig_t& config);
// The same for one call.
ncclResult_t read_call_config(const char* function, const ncclCollConfig_t& given, ncclCollConfig_t& known);

// Carries out a call with the settings of `config`, which may be null.
template <class Call>
ncclResult_t configured(const char* function, const ncclCollConfig_t* config, weftComm_t comm, Call&& call) noexcept {
    if (!config) return call();
    ncclCollConfig_t known;
    if (const ncclResult_t read = read_call_config(function, *config, known); read != ncclSuccess) return read;
    if (!known.algSelection || !*known.algSelection) return call();
    weftCallConfig_t wanted = WEFT_CALL_CONFIG_INITIALIZER;
    wanted.algo = known.algSelection;
    if (const weftResult_t set = weftCommSetCallConfig(comm, &wanted); set != weftSuccess) {
        if (set == weftInvalidArgument && known.forceAlgSelection == 0) return call();
        return finish(set);
    }
    const ncclResult_t result = call();
    // Returning to the communicator's settings fails only if the communicator has ended.
    [[maybe_unused]] const weftResult_t reset = weftCommSetCallConfig(comm, nullptr);
    return result;
}

}  // namespace weft::internal::nccl
