// fake_nccl.cpp: a libnccl.so.2 that has what perf/peers/nccl.cpp calls, and lets Weft do it. FAKE_NCCL_VERSION: which one
// it says it is.
#include <weft/weft.h>

#include <cstdlib>

#define FAKE_NCCL __attribute__((visibility("default")))

extern "C" {

FAKE_NCCL weftResult_t ncclGetVersion(int* version) {
    const char* wanted = std::getenv("FAKE_NCCL_VERSION");
    *version = wanted ? std::atoi(wanted) : 23007;
    return weftSuccess;
}
FAKE_NCCL const char* ncclGetErrorString(weftResult_t result) { return weftGetErrorString(result); }
FAKE_NCCL const char* ncclGetLastError(weftComm_t comm) { return weftGetLastError(comm); }
FAKE_NCCL weftResult_t ncclGetUniqueId(weftUniqueId* id) { return weftGetUniqueId(id); }
FAKE_NCCL weftResult_t ncclCommInitRank(weftComm_t* comm, int ranks, weftUniqueId id, int rank) {
    return weftCommInitRank(comm, ranks, id, rank);
}
FAKE_NCCL weftResult_t ncclCommDestroy(weftComm_t comm) { return weftCommDestroy(comm); }
FAKE_NCCL weftResult_t ncclCommAbort(weftComm_t comm) { return weftCommAbort(comm); }
FAKE_NCCL weftResult_t ncclCommGetAsyncError(weftComm_t comm, weftResult_t* result) {
    return weftCommGetAsyncError(comm, result);
}
FAKE_NCCL weftResult_t ncclCommCount(weftComm_t comm, int* count) { return weftCommCount(comm, count); }
FAKE_NCCL weftResult_t ncclCommUserRank(weftComm_t comm, int* rank) { return weftCommUserRank(comm, rank); }
FAKE_NCCL weftResult_t ncclGroupStart() { return weftGroupStart(); }
FAKE_NCCL weftResult_t ncclGroupEnd() { return weftGroupEnd(); }
// As NCCL, it takes device memory only.
FAKE_NCCL weftResult_t ncclAllReduce(const void* send, void* receive, size_t count, weftDataType_t type, weftRedOp_t op,
                                     weftComm_t comm, weftStream_t stream) {
    if (stream == nullptr) return weftInvalidUsage;
    return weftAllReduce(send, receive, count, type, op, comm, stream);
}
FAKE_NCCL weftResult_t ncclRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t type,
                                                weftScalarResidence_t residence, weftComm_t comm) {
    return weftRedOpCreatePreMulSum(op, scalar, type, residence, comm);
}
FAKE_NCCL weftResult_t ncclRedOpDestroy(weftRedOp_t op, weftComm_t comm) { return weftRedOpDestroy(op, comm); }
FAKE_NCCL weftResult_t ncclCommRegister(weftComm_t comm, void* buffer, size_t bytes, void** handle) {
    return weftCommRegister(comm, buffer, bytes, handle);
}
FAKE_NCCL weftResult_t ncclCommDeregister(weftComm_t comm, void* handle) { return weftCommDeregister(comm, handle); }
FAKE_NCCL weftResult_t ncclMemAlloc(void** address, size_t bytes) { return weftMemAlloc(address, bytes); }
FAKE_NCCL weftResult_t ncclMemFree(void* address) { return weftMemFree(address); }
}
