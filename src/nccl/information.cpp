// information.cpp: version, texts of errors, encryption, and the functions that only print.
#include "src/nccl/configs.hpp"
#include "src/nccl/last_error.hpp"
#include "src/nccl/translation.hpp"

using namespace weft::internal::nccl;

extern "C" {

ncclResult_t pncclGetVersion(int* version) {
    if (!version) return refuse(ncclInvalidArgument, "ncclGetVersion", "version is NULL");
    *version = WEFT_NCCL_VERSION;
    return ncclSuccess;
}

const char* pncclGetErrorString(ncclResult_t result) { return weftGetErrorString(weft_result(result)); }

const char* pncclGetLastError(ncclComm_t comm) { return newest_error(comm); }

// Weft reads the settings of its log once.
void pncclResetDebugInit(void) {}

// `weft info` prints Weft's options.
void pncclParamDumpAll(void) {}

ncclResult_t pncclSetEncryption(const ncclEncryptionConfig_t* config) {
    return guarded("ncclSetEncryption", [&] {
        if (!config) return refuse(ncclInvalidArgument, "ncclSetEncryption", "config is NULL");
        ncclEncryptionConfig_t known{};
        if (!read_struct(*config, NCCL_API_MAGIC, known))
            return refuse(ncclInvalidArgument, "ncclSetEncryption",
                          "config was not initialised by NCCL_ENCRYPTION_CONFIG_INITIALIZER");
        if (known.mode == NCCL_ENCRYPTION_MODE_NONE) return ncclSuccess;
        return refuse(ncclInvalidUsage, "ncclSetEncryption",
                      "Weft does not encrypt data between ranks: use an encrypted network");
    });
}
}
