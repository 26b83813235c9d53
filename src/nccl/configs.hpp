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

// Blocks of a kernel, as weftConfig_t and weftCallConfig_t take them.
struct BlockNumbers {
    int least = WEFT_CONFIG_UNDEF_INT, most = WEFT_CONFIG_UNDEF_INT, policy = WEFT_CONFIG_UNDEF_INT;
};

// Writes the settings that Weft has to `config`; those that it lacks are named in the log at INFO.
// given  of ncclCommInitRankConfig, ncclCommSplit or ncclCommShrink; not null
ncclResult_t read_config(const char* function, const ncclConfig_t& given, weftConfig_t& config);
// The same for one call.
ncclResult_t read_call_config(const char* function, const ncclCollConfig_t& given, ncclCollConfig_t& known,
                              BlockNumbers& blocks);

// Carries out a call with the settings of `config`, which may be null.
template <class Call>
ncclResult_t configured(const char* function, const ncclCollConfig_t* config, weftComm_t comm, Call&& call) noexcept {
    if (!config) return call();
    ncclCollConfig_t known;
    BlockNumbers blocks;
    if (const ncclResult_t read = read_call_config(function, *config, known, blocks); read != ncclSuccess) return read;
    weftCallConfig_t wanted = WEFT_CALL_CONFIG_INITIALIZER;
    wanted.minBlocks = blocks.least;
    wanted.maxBlocks = blocks.most;
    wanted.blockPolicy = blocks.policy;
    if (known.algSelection && *known.algSelection) wanted.algo = known.algSelection;
    const bool of_blocks = blocks.least != WEFT_CONFIG_UNDEF_INT || blocks.most != WEFT_CONFIG_UNDEF_INT ||
                           blocks.policy != WEFT_CONFIG_UNDEF_INT;
    if (!wanted.algo && !of_blocks) return call();
    weftResult_t set = weftCommSetCallConfig(comm, &wanted);
    if (set == weftInvalidArgument && wanted.algo && known.forceAlgSelection == 0) {
        wanted.algo = nullptr;
        set = weftCommSetCallConfig(comm, of_blocks ? &wanted : nullptr);
    }
    if (set != weftSuccess) return finish(set);
    const ncclResult_t result = call();
    // Returning to the communicator's settings fails only if the communicator has ended.
    [[maybe_unused]] const weftResult_t reset = weftCommSetCallConfig(comm, nullptr);
    return result;
}

}  // namespace weft::internal::nccl
