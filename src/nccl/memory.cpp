// memory.cpp: memory, registered buffers, windows and one-sided calls.
#include <iterator>
#include <vector>

#include "src/nccl/last_error.hpp"
#include "src/nccl/process.hpp"
#include "src/nccl/translation.hpp"

using namespace weft::internal::nccl;

extern "C" {

ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
    return guarded("ncclMemAlloc", [&] {
        if (has_devices()) return finish(weftMemAlloc(ptr, size));
        const weftResult_t result = weftHostAlloc(ptr, size);
        if (result == weftSuccess)
            log_info("ncclMemAlloc: there is no GPU, so the " + std::to_string(size) +
                     " bytes are host memory, which ranks of this host can map");
        return finish(result);
    });
}
ncclResult_t pncclMemFree(void* ptr) { return finish(weftMemFree(ptr)); }

ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
    return finish(weftCommRegister(weft_comm(comm), buff, size, handle));
}
ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle) {
    return finish(weftCommDeregister(weft_comm(comm), handle));
}

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags) {
    // These restrict or promise what Weft does not use.
    constexpr int accepted = NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING | NCCL_WIN_GIN_ONLY;
    if ((winFlags & ~accepted) != 0)
        return refuse(ncclInvalidUsage, "ncclCommWindowRegister",
                      "Weft has no window flags but NCCL_WIN_COLL_SYMMETRIC, NCCL_WIN_STRICT_ORDERING and "
                      "NCCL_WIN_GIN_ONLY");
    return finish(weftCommWindowRegister(weft_comm(comm), buff, size, weft_window(win), WEFT_WIN_DEFAULT));
}
ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
    return finish(weftCommWindowDeregister(weft_comm(comm), weft_window(win)));
}
ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr) {
    return finish(weftWinGetUserPtr(weft_comm(comm), weft_window(win), outUserPtr));
}

ncclResult_t pncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                            ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
                            ncclComm_t comm, cudaStream_t stream) {
    return finish(weftPutSignal(localbuff, count, weft_type(datatype), peer, weft_window(peerWin), peerWinOffset,
                                sigIdx, ctx, flags, weft_comm(comm), stream));
}
ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
    return finish(weftSignal(peer, sigIdx, ctx, flags, weft_comm(comm), stream));
}
ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream) {
    return guarded("ncclWaitSignal", [&] {
        weftWaitSignalDesc_t on_stack[16];  // so that a usual call does not allocate
        std::vector<weftWaitSignalDesc_t> on_heap;
        weftWaitSignalDesc_t* all = signalDescs ? on_stack : nullptr;
        if (signalDescs && nDesc > int(std::size(on_stack))) {
            on_heap.resize(size_t(nDesc));
            all = on_heap.data();
        }
        for (int i = 0; signalDescs && i < nDesc; ++i) {
            const ncclWaitSignalDesc_t& given = signalDescs[i];
            all[i] = {.opCnt = given.opCnt, .peer = given.peer, .sigIdx = given.sigIdx, .ctx = given.ctx};
        }
        return finish(weftWaitSignal(nDesc, all, weft_comm(comm), stream));
    });
}
}
