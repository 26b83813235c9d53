// one_sided.cpp: checks the arguments of window and one-sided calls and submits them.
#include "src/api/arguments.hpp"
#include "src/api/guard.hpp"
#include "src/calls/group.hpp"
#include "src/calls/submit.hpp"
#include "src/comm/window_registration.hpp"
#include "weft/weft.h"

using namespace weft::internal;

namespace {

using RmaOp = OneSidedCall::RmaOp;

// The local side of a call.
struct Local {
    const char* name;
    void* data;  // only read by a put
    size_t count;
    weftDataType_t type;
};

Status check_signal(int index, int context) {
    if (index < 0 || index >= WEFT_SIGNALS)
        return fail(error::argument_value, "sigIdx is {}; it must be 0 to {}", index, WEFT_SIGNALS - 1);
    if (context < 0 || context >= WEFT_SIGNAL_CONTEXTS)
        return fail(error::argument_value, "ctx is {}; it must be 0 to {}", context, WEFT_SIGNAL_CONTEXTS - 1);
    return ok();
}

Status check_flags(unsigned flags) {
    if (flags == 0) return ok();
    return fail(error::argument_value, "flags is {:#x}; no flags exist, so pass 0", flags);
}

// `check` checks the arguments and fills in the access.
template <class Check>
weftResult_t run_access(const char* function, RmaOp which, const Local& local, int peer, weftComm_t comm,
                        weftStream_t stream, Check&& check) {
    return guarded_call(function, comm, [&]() -> Status {
        Entered entered(comm);
        if (!entered.entered()) [[unlikely]]
            return entered.refused();
        const int ranks = comm->communicator->ranks();
        WEFT_TRY(check_type(local.type));
        WEFT_TRY(check_rank("peer", peer, ranks));
        WEFT_TRY(check_count(local.count, 1));
        if (local.count > 0 && !local.data)
            return fail(error::argument_null, "{} is NULL although its count is {}", local.name, local.count);
        Access access;
        WEFT_TRY(check(access));
        if (access.window) WEFT_TRY(check_window(access.window, comm));
        Call call{.kind = AccessCall{which, peer, local.data, local.count * size_of(local.type), &access},
                  .stream = stream,
                  .only_buffer = local.name};
        return submit(entered, comm, {&call, 1});
    });
}

// Refuses NULL, which check_window() accepts for calls without a window.
Status check_there(const weftWindow* window) {
    if (window) return ok();
    return fail(error::argument_null, "peerWin is NULL: pass what weftCommWindowRegister gave this rank");
}

constexpr Local nothing = {"", nullptr, 0, weftInt8};

}  // namespace

extern "C" {

weftResult_t weftCommWindowRegister(weftComm_t comm, void* buff, size_t bytes, weftWindow_t* win, int winFlags) {
    const weftResult_t result = guarded_call(__func__, comm, [&]() -> Status {
        if (!win)
            return fail(error::argument_null, "weftCommWindowRegister: win is NULL: pass a weftWindow_t's address");
        *win = nullptr;
        if (!buff && bytes > 0)
            return fail(error::argument_null, "weftCommWindowRegister: buff is NULL although bytes is {}", bytes);
        if (bytes > size_t(1) << 48)
            return fail(error::argument_count,
                        "weftCommWindowRegister: bytes is {}, which is more bytes than any memory holds", bytes);
        // NCCL_WIN_COLL_SYMMETRIC and NCCL_WIN_STRICT_ORDERING are accepted: Weft does what they ask for anyway.
        constexpr int nccl_flags = 3;
        if ((winFlags & ~nccl_flags) != 0)
            return fail(error::argument_value, "weftCommWindowRegister: winFlags is {:#x}; pass WEFT_WIN_DEFAULT",
                        unsigned(winFlags));
        Call call{};
        Status placed;
        {
            // CallPlacement knows calls but no windows, so it gets a put of the same buffer.
            Entered entered(comm);
            if (!entered.entered()) return entered.refused();
            call.kind = AccessCall{RmaOp::put, 0, buff, bytes};
            call.only_buffer = "buff";
            placed = comm->communicator->inputs().placement.place(call);
            if (!placed) placed = not_placed(entered, *comm->communicator, std::move(placed));
        }
        if (placed.code() == weftUnhandledCudaError) return placed;
        *win = make_window(comm, buff, bytes);
        (*win)->space = call.space;
        (*win)->mapped = call.mapped;
        (*win)->unfit = std::move(placed);  // the other ranks register too and must get the error
        return Group::current().add_or_run(comm, WindowRegistration::open(comm, *win));
    });
    if (result != weftSuccess && result != weftInProgress && win) *win = nullptr;
    return result;
}

weftResult_t weftCommWindowDeregister(weftComm_t comm, weftWindow_t win) {
    return guarded_call(__func__, comm, [&]() -> Status {
        if (!win) return fail(error::argument_null, "weftCommWindowDeregister: win is NULL");
        WEFT_TRY(check_window(win, comm));
        return Group::current().add_or_run(comm, WindowRegistration::close(comm, win));
    });
}

weftResult_t weftWinGetUserPtr(weftComm_t comm, weftWindow_t win, void** outUserPtr) {
    return guarded_comm(comm, [&]() -> Status {
        if (!win || !outUserPtr)
            return fail(error::argument_null, "weftWinGetUserPtr: {} is NULL", win ? "outUserPtr" : "win");
        WEFT_TRY(check_window(win, comm));
        *outUserPtr = win->address;
        return ok();
    });
}

weftResult_t weftPut(const void* localbuff, size_t count, weftDataType_t datatype, int peer, weftWindow_t peerWin,
                     size_t peerWinOffset, weftComm_t comm, weftStream_t stream) {
    return run_access(__func__, RmaOp::put, {"localbuff", const_cast<void*>(localbuff), count, datatype}, peer, comm,
                      stream, [&](Access& access) -> Status {
                          WEFT_TRY(check_there(peerWin));
                          access = {peerWin, peerWinOffset};
                          return ok();
                      });
}

weftResult_t weftPutSignal(const void* localbuff, size_t count, weftDataType_t datatype, int peer, weftWindow_t peerWin,
                           size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, weftComm_t comm,
                           weftStream_t stream) {
    return run_access(__func__, RmaOp::put, {"localbuff", const_cast<void*>(localbuff), count, datatype}, peer, comm,
                      stream, [&](Access& access) -> Status {
                          WEFT_TRY(check_there(peerWin));
                          WEFT_TRY(check_signal(sigIdx, ctx));
                          WEFT_TRY(check_flags(flags));
                          access = {peerWin, peerWinOffset, Signals::number_of(sigIdx, ctx)};
                          return ok();
                      });
}

weftResult_t weftGet(void* localbuff, size_t count, weftDataType_t datatype, int peer, weftWindow_t peerWin,
                     size_t peerWinOffset, weftComm_t comm, weftStream_t stream) {
    return run_access(__func__, RmaOp::get, {"localbuff", localbuff, count, datatype}, peer, comm, stream,
                      [&](Access& access) -> Status {
                          WEFT_TRY(check_there(peerWin));
                          access = {peerWin, peerWinOffset};
                          return ok();
                      });
}

weftResult_t weftSignal(int peer, int sigIdx, int ctx, unsigned int flags, weftComm_t comm, weftStream_t stream) {
    return run_access(__func__, RmaOp::signal, nothing, peer, comm, stream, [&](Access& access) -> Status {
        WEFT_TRY(check_signal(sigIdx, ctx));
        WEFT_TRY(check_flags(flags));
        access.signal = Signals::number_of(sigIdx, ctx);
        return ok();
    });
}

weftResult_t weftWaitSignal(int nDesc, const weftWaitSignalDesc_t* signalDescs, weftComm_t comm, weftStream_t stream) {
    return run_access(__func__, RmaOp::wait, nothing, 0, comm, stream, [&](Access& access) -> Status {
        if (nDesc < 0 || (nDesc > 0 && !signalDescs))
            return fail(nDesc < 0 ? error::argument_value : error::argument_null, "weftWaitSignal: nDesc is {}{}",
                        nDesc, nDesc < 0 ? "; it is at least 0" : " and signalDescs is NULL");
        for (int i = 0; i < nDesc; ++i) {
            const weftWaitSignalDesc_t& each = signalDescs[i];
            WEFT_TRY(check_rank("peer of a signalDesc", each.peer, comm->communicator->ranks()));
            WEFT_TRY(check_signal(each.sigIdx, each.ctx));
            if (each.opCnt < 0)
                return fail(error::argument_value, "opCnt of a signalDesc is {}; it is at least 0", each.opCnt);
            access.waits.push_back({each.peer, Signals::number_of(each.sigIdx, each.ctx), uint64_t(each.opCnt)});
        }
        return ok();
    });
}
}
