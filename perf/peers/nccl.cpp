// nccl.cpp: the functions of weft.h that the benchmarks call, implemented over NCCL.
// all_reduce_perf with this file gives NCCL's times in the same table, by the same checks.
// The library is opened at run time: PERF_NCCL_LIBRARY, or libnccl.so.2.
// Ranks are threads of one process (-g, -t, --ranks-per-gpu, for which NCCL needs NCCL_MULTI_RANK_GPU_ENABLE=1).
// Calls on device memory go to NCCL unchanged.
// Exchanges outside the timed region use host memory, which NCCL rejects: they go through memory of the rank's GPU.
#include <weft/weft.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>

#include "src/base/datatype.hpp"
#include "src/base/options.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/drivers/library.hpp"
#include "src/launchers/launcher_family.hpp"

using namespace weft::internal;
using namespace weft::internal::cuda;

struct weftComm {
    void* handle = nullptr;  // NCCL's
    Context context;
    Stream stream;
    DeviceMemory staging;
};

namespace {

// NCCL's numbers are equal to Weft's (weft/types.h).
struct Nccl {
    weftResult_t (*GetVersion)(int*);
    weftResult_t (*GetUniqueId)(weftUniqueId*);
    weftResult_t (*CommInitRank)(void**, int, weftUniqueId, int);
    weftResult_t (*CommDestroy)(void*);
    weftResult_t (*CommAbort)(void*);
    weftResult_t (*CommGetAsyncError)(void*, weftResult_t*);
    weftResult_t (*CommCount)(void*, int*);
    weftResult_t (*CommUserRank)(void*, int*);
    weftResult_t (*GroupStart)();
    weftResult_t (*GroupEnd)();
    weftResult_t (*AllReduce)(const void*, void*, size_t, weftDataType_t, weftRedOp_t, void*, void*);
    weftResult_t (*RedOpCreatePreMulSum)(int*, void*, weftDataType_t, weftScalarResidence_t, void*);
    weftResult_t (*RedOpDestroy)(int, void*);
    const char* (*GetErrorString)(weftResult_t);
    const char* (*GetLastError)(void*);
    weftResult_t (*CommRegister)(void*, void*, size_t, void**);
    weftResult_t (*CommDeregister)(void*, void*);
    // From 2.27 on; null: older.
    weftResult_t (*CommWindowRegister)(void*, void*, size_t, weftWindow_t*, int);
    weftResult_t (*CommWindowDeregister)(void*, weftWindow_t);
    weftResult_t (*MemAlloc)(void**, size_t);
    weftResult_t (*MemFree)(void*);
};

thread_local std::string last_error;

weftResult_t refuse(weftResult_t result, std::string why) {
    last_error = std::move(why);
    return result;
}

Result<Nccl> open_nccl() {
    const std::string name = environment("PERF_NCCL_LIBRARY").value_or("libnccl.so.2");
    auto library = DynamicLibrary::open(name);
    if (!library)
        return fail(error::driver_missing, "no NCCL: {}: PERF_NCCL_LIBRARY may name its libnccl.so.2",
                    library.status().sentence());
    Nccl nccl{};
    std::string missing;
    const auto find = [&](const char* function, auto& pointer) {
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(library->find(function));
        if (pointer == nullptr) missing = function;
    };
#define FIND(function) find("nccl" #function, nccl.function)
    FIND(GetVersion), FIND(GetUniqueId), FIND(CommInitRank), FIND(CommDestroy), FIND(CommAbort);
    FIND(CommGetAsyncError), FIND(CommCount), FIND(CommUserRank), FIND(GroupStart), FIND(GroupEnd), FIND(AllReduce);
    FIND(RedOpCreatePreMulSum), FIND(RedOpDestroy), FIND(GetErrorString), FIND(GetLastError), FIND(CommRegister);
    FIND(CommDeregister), FIND(MemAlloc), FIND(MemFree);
    const std::string needed = missing;
    FIND(CommWindowRegister), FIND(CommWindowDeregister);
    missing = needed;
#undef FIND
    library->keep();
    if (!missing.empty()) return fail(error::driver_missing, "{} has no {}: NCCL 2.19 or newer is wanted", name, missing);
    return nccl;
}

// Null if there is no NCCL; the message is kept.
const Nccl* nccl() {
    static const Result<Nccl> opened = open_nccl();
    if (opened) return &*opened;
    last_error = opened.status().sentence();
    return nullptr;
}

weftResult_t check(const Status& status) { return status ? weftSuccess : refuse(status.code(), status.sentence()); }

// On the current device, as for NCCL's own communicators.
Result<weftComm_t> make_comm() {
    auto driver = Driver::get();
    if (!driver) return driver.take_status();
    auto device = current_device(**driver);
    if (!device) return device.take_status();
    if (!*device) return fail(error::gpu_no_device, "NCCL has no ranks without a GPU: -g 1 or more");
    auto comm = std::make_unique<weftComm>();
    auto context = Context::retain(**driver, **device);
    if (!context) return context.take_status();
    comm->context = std::move(*context);
    auto stream = Stream::create(comm->context);
    if (!stream) return stream.take_status();
    comm->stream = std::move(*stream);
    return comm.release();
}

weftResult_t join(weftComm_t* comm, int ranks, const weftUniqueId& id, int rank) {
    const Nccl* const library = nccl();
    if (library == nullptr) return weftSystemError;
    last_error.clear();  // NCCL's errors count from here on
    auto made = make_comm();
    if (!made) return refuse(made.status().code(), made.status().sentence());
    *comm = *made;
    return library->CommInitRank(&(*comm)->handle, ranks, id, rank);
}

Status reduce_host(const void* send, void* receive, size_t count, weftDataType_t type, weftRedOp_t op,
                   weftComm_t comm) {
    const Driver& driver = comm->context.driver();
    const size_t bytes = count * datatype_bytes[type];
    const ContextScope scope(comm->context);
    if (comm->staging.bytes() < bytes) {
        auto memory = DeviceMemory::allocate(comm->context, std::max<size_t>(bytes, 1 << 16));
        if (!memory) return memory.take_status();
        comm->staging = std::move(*memory);
    }
    const CUstream stream = comm->stream.handle();
    WEFT_TRY(copy_async(driver, comm->staging.address(), CUdeviceptr(send), bytes, stream));
    void* const staging = comm->staging.data();
    if (const weftResult_t result = nccl()->AllReduce(staging, staging, count, type, op, comm->handle, stream);
        result != weftSuccess)
        return fail(error::cuda_call, "ncclAllReduce: {}", nccl()->GetLastError(comm->handle));
    WEFT_TRY(copy_async(driver, CUdeviceptr(receive), comm->staging.address(), bytes, stream));
    return comm->stream.synchronize();
}

}  // namespace

extern "C" {

weftResult_t weftGetVersion(int* version) { return nccl() ? nccl()->GetVersion(version) : weftSystemError; }
const char* weftGetErrorString(weftResult_t result) {
    return nccl() ? nccl()->GetErrorString(result) : "NCCL is missing";
}
const char* weftGetLastError(weftComm_t comm) {
    if (!last_error.empty() || !nccl()) return last_error.c_str();
    const char* text = nccl()->GetLastError(comm ? comm->handle : nullptr);
    return text ? text : "";
}
weftResult_t weftGetUniqueId(weftUniqueId* id) { return nccl() ? nccl()->GetUniqueId(id) : weftSystemError; }
weftResult_t weftCommInitRankConfig(weftComm_t* comm, int ranks, weftUniqueId id, int rank, const weftConfig_t*) {
    return join(comm, ranks, id, rank);
}
// Ranks are threads: under a launcher each process would measure itself.
weftResult_t weftCommInitFromEnvironment(weftComm_t* comm, const weftConfig_t*) {
    const auto family = find_family();
    const auto place = family && *family ? read_launched_rank(**family) : Result<LaunchedRank>(LaunchedRank{});
    if (!place || place->ranks > 1)
        return refuse(weftInvalidUsage,
                      "ranks of NCCL are threads here: -g, -t and --ranks-per-gpu, without a launcher");
    weftUniqueId id;
    const weftResult_t result = weftGetUniqueId(&id);
    return result == weftSuccess ? join(comm, 1, id, 0) : result;
}
weftResult_t weftCommDestroy(weftComm_t comm) {
    const std::unique_ptr<weftComm> owner(comm);
    return nccl()->CommDestroy(comm->handle);
}
weftResult_t weftCommAbort(weftComm_t comm) {
    const std::unique_ptr<weftComm> owner(comm);
    return nccl()->CommAbort(comm->handle);
}
weftResult_t weftCommGetAsyncError(weftComm_t comm, weftResult_t* result) {
    return nccl()->CommGetAsyncError(comm->handle, result);
}
weftResult_t weftCommCount(const weftComm_t comm, int* count) { return nccl()->CommCount(comm->handle, count); }
weftResult_t weftCommUserRank(const weftComm_t comm, int* rank) { return nccl()->CommUserRank(comm->handle, rank); }
weftResult_t weftGroupStart(void) { return nccl()->GroupStart(); }
weftResult_t weftGroupEnd(void) { return nccl()->GroupEnd(); }

weftResult_t weftAllReduce(const void* send, void* receive, size_t count, weftDataType_t datatype, weftRedOp_t op,
                           weftComm_t comm, weftStream_t stream) {
    // Without a stream the memory may be of either kind; measured calls always name a stream.
    if (stream == nullptr) {
        const auto facts = describe_pointer(comm->context.driver(), send);
        if (!facts || !facts->on_device()) return check(reduce_host(send, receive, count, datatype, op, comm));
    }
    return nccl()->AllReduce(send, receive, count, datatype, op, comm->handle, stream);
}
weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t datatype,
                                      weftScalarResidence_t residence, weftComm_t comm) {
    int made = 0;
    const weftResult_t result = nccl()->RedOpCreatePreMulSum(&made, scalar, datatype, residence, comm->handle);
    *op = weftRedOp_t(made);
    return result;
}
weftResult_t weftRedOpDestroy(weftRedOp_t op, weftComm_t comm) { return nccl()->RedOpDestroy(int(op), comm->handle); }

weftResult_t weftHostAlloc(void**, size_t) { return refuse(weftInvalidUsage, "-R 1 on host memory is Weft's own"); }
weftResult_t weftMemAlloc(void** address, size_t bytes) { return nccl()->MemAlloc(address, bytes); }
weftResult_t weftMemFree(void* address) { return nccl()->MemFree(address); }
weftResult_t weftCommRegister(const weftComm_t comm, void* buffer, size_t bytes, void** handle) {
    return nccl()->CommRegister(comm->handle, buffer, bytes, handle);
}
weftResult_t weftCommDeregister(const weftComm_t comm, void* handle) {
    return nccl()->CommDeregister(comm->handle, handle);
}
weftResult_t weftCommWindowRegister(weftComm_t comm, void* buffer, size_t bytes, weftWindow_t* window, int flags) {
    if (!nccl()->CommWindowRegister) return refuse(weftInvalidUsage, "-R 2 needs NCCL 2.27 or newer");
    return nccl()->CommWindowRegister(comm->handle, buffer, bytes, window, flags);
}
weftResult_t weftCommWindowDeregister(weftComm_t comm, weftWindow_t window) {
    return nccl()->CommWindowDeregister(comm->handle, window);
}
weftResult_t weftCommExplainCollective(weftComm_t, const char*, size_t, weftDataType_t, weftRedOp_t, int, char* text,
                                       size_t bytes, size_t* needed) {
    const int length = std::snprintf(text, bytes, "in device memory: nccl");
    if (needed) *needed = size_t(length) + 1;
    return weftSuccess;
}
weftResult_t weftCommSetCallConfig(weftComm_t, const weftCallConfig_t*) { return weftInvalidUsage; }
weftResult_t weftCommMemStats(weftComm_t, weftMemStat_t, uint64_t* bytes) {
    *bytes = 0;  // NCCL does not report it
    return weftSuccess;
}
}
