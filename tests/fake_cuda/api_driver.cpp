// api_driver.cpp: the fake driver: version, errors, how its functions are found, devices, contexts.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/fake_cuda/kernels.hpp"
#include "tests/fake_cuda/work.hpp"

using namespace weft::internal::fake;

extern "C" {

CUresult fake_stream_capture_info(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                  size_t*);

CUresult cuInit(unsigned flags) {
    if (const CUresult early = enter("cuInit", true); early != CUDA_SUCCESS) return early;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    World& all = world();
    std::lock_guard lock(all.mutex);
    const int process = all.initialised_by.load();
    if (process != 0 && process != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
    if (all.setting.gpus == 0) return CUDA_ERROR_NO_DEVICE;
    static bool loaded = false;
    if (const char* path = getenv("FAKE_CUDA_KERNELS"); path != nullptr && !loaded) {
        void* kernels = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const auto add =
            kernels ? reinterpret_cast<void (*)(FakeKernelTable)>(dlsym(kernels, "fake_cuda_kernels")) : nullptr;
        if (add == nullptr) {
            std::fprintf(stderr, "fake CUDA driver: FAKE_CUDA_KERNELS: no fake_cuda_kernels in %s\n", path);
            return CUDA_ERROR_UNKNOWN;
        }
        add(fake_cuda_add_kernel);
        loaded = true;
    }
    all.initialised_by.store(getpid());
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
    if (const CUresult early = enter("cuDriverGetVersion", true); early != CUDA_SUCCESS) return early;
    *version = world().setting.version;
    return CUDA_SUCCESS;
}

#define FAKE_ERRORS(row)                                                                                               \
    row(CUDA_SUCCESS, "no error") row(CUDA_ERROR_INVALID_VALUE, "invalid argument") row(                               \
        CUDA_ERROR_OUT_OF_MEMORY, "out of memory") row(CUDA_ERROR_NOT_INITIALIZED,                                     \
                                                       "initialization error") row(CUDA_ERROR_STUB_LIBRARY,            \
                                                                                   "CUDA driver is a stub library")    \
        row(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected") row(                                           \
            CUDA_ERROR_INVALID_DEVICE,                                                                                 \
            "invalid device ordinal") row(CUDA_ERROR_INVALID_IMAGE,                                                    \
                                          "device kernel image is invalid") row(CUDA_ERROR_INVALID_CONTEXT,            \
                                                                                "invalid device context")              \
            row(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device") row(         \
                CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")          \
                row(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled") row(                     \
                    CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain") \
                    row(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS") row(      \
                        CUDA_ERROR_INVALID_HANDLE,                                                                     \
                        "invalid resource handle") row(CUDA_ERROR_NOT_FOUND,                                           \
                                                       "named symbol not found") row(CUDA_ERROR_NOT_READY,             \
                                                                                     "device not ready")               \
                        row(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered") row(               \
                            CUDA_ERROR_LAUNCH_FAILED,                                                                  \
                            "unspecified launch failure") row(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,                 \
                                                              "too many blocks in cooperative launch")                 \
                            row(CUDA_ERROR_NOT_PERMITTED, "operation not permitted") row(                              \
                                CUDA_ERROR_NOT_SUPPORTED, "operation not supported") row(CUDA_ERROR_SYSTEM_NOT_READY,  \
                                                                                         "system not yet initialized") \
                                row(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed") row(                      \
                                    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,                                         \
                                    "part or all of the requested memory range is already mapped")                     \
                                    row(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,                                         \
                                        "pointer does not correspond to a registered memory region")                   \
                                        row(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,                                     \
                                            "operation not permitted when stream is capturing")                        \
                                            row(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,                                 \
                                                "operation failed due to a previous error during capture")             \
                                                row(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,                               \
                                                    "capture was not initiated in this stream")                        \
                                                    row(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,                            \
                                                        "capturing stream has unjoined work")                          \
                                                        row(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,                       \
                                                            "dependency created on uncaptured work in another stream") \
                                                            row(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                    \
                                                                "operation would make the legacy stream depend on a "  \
                                                                "capturing blocking stream")                           \
                                                                row(CUDA_ERROR_CAPTURED_EVENT,                         \
                                                                    "operation not permitted on an event last "        \
                                                                    "recorded in a capturing stream")                  \
                                                                    row(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,        \
                                                                        "attempt to terminate a thread-local capture " \
                                                                        "sequence from another thread")                \
                                                                        row(CUDA_ERROR_UNKNOWN, "unknown error")

CUresult cuGetErrorName(CUresult error, const char** text) {
    switch (error) {
#define FAKE_ROW(code, sentence) \
    case code: *text = #code; return CUDA_SUCCESS;
        FAKE_ERRORS(FAKE_ROW)
#undef FAKE_ROW
        default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuGetErrorString(CUresult error, const char** text) {
    switch (error) {
#define FAKE_ROW(code, sentence) \
    case code: *text = sentence; return CUDA_SUCCESS;
        FAKE_ERRORS(FAKE_ROW)
#undef FAKE_ROW
        default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
    }
}

// As it was from 12.0 on: no error, but no function and a status.
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
    struct Row {
        const char* name;
        int version;
        void* function;
    };
    static const Row rows[] = {
#define FAKE_FUNCTION(name, version) {"cu" #name, version, reinterpret_cast<void*>(cu##name)},
#define FAKE_FUNCTION_AS(name, version, symbol) {"cu" #name, version, reinterpret_cast<void*>(symbol)},
#include "tests/fake_cuda/functions.def"
#undef FAKE_FUNCTION
#undef FAKE_FUNCTION_AS
    };
    if (const CUresult early = enter("cuGetProcAddress", true); early != CUDA_SUCCESS) return early;
    if ((flags & ~cuuint64_t(3)) != 0) return CUDA_ERROR_INVALID_VALUE;
    *function = nullptr;
    const int newest = world().setting.version;
    const auto row = std::find_if(std::begin(rows), std::end(rows),
                                  [&](const Row& each) { return std::strcmp(each.name, symbol) == 0; });
    const bool known = row != std::end(rows) && row->version <= newest && version <= newest;
    const bool sufficient = known && version >= row->version;
    if (status != nullptr)
        *status = sufficient ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known    ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                             : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (sufficient) *function = row->function;
    return CUDA_SUCCESS;
}

// As it was before 12.0.
#undef cuGetProcAddress
CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result = cuGetProcAddress_v2(symbol, function, version, flags, &status);
    return result == CUDA_SUCCESS && *function == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}

CUresult cuDeviceGetCount(int* count) {
    FAKE_ENTER(DeviceGetCount);
    *count = world().setting.gpus;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    FAKE_ENTER(DeviceGet);
    *device = ordinal;
    return check_device(ordinal);
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
    FAKE_ENTER(DeviceGetName);
    std::snprintf(name, size_t(bytes), "Fake GPU %d", device);
    return check_device(device);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    FAKE_ENTER(DeviceGetUuid);
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = char(i == 15 ? device : 0xf0 + i % 10);
    return check_device(device);
}

CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
    FAKE_ENTER(DeviceGetPCIBusId);
    // Upper case, as the real driver has it.
    std::snprintf(id, size_t(bytes), "0000:%02X:00.0", 0x1a + device);
    return check_device(device);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    FAKE_ENTER(DeviceTotalMem);
    *bytes = world().setting.memory_bytes;
    return check_device(device);
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
    FAKE_ENTER(DeviceGetAttribute);
    const Setting& setting = world().setting;
    // An old driver does not know the newer ones.
    if ((which >= 128 && setting.version < 12030) || (which >= 121 && setting.version < 11060))
        return CUDA_ERROR_INVALID_VALUE;
    int standard = 0;
    switch (which) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: standard = 1024; break;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: standard = 32; break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: standard = setting.multiprocessors; break;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: standard = Limits::threads; break;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: standard = Limits::blocks; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: standard = Limits::shared_default; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: standard = Limits::shared_block_bytes; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: standard = Limits::shared_bytes; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: standard = setting.sm / 10; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: standard = setting.sm % 10; break;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: standard = 0x1a + device; break;
        case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
        case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
        case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: standard = 1; break;
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: standard = setting.clique_of(device) != nullptr; break;
        case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: standard = setting.sm >= 90; break;
        case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: standard = setting.sm >= 90 ? 4 : 1; break;
        default: break;
    }
    *value = setting.attribute(device, which, standard);
    return check_device(device);
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    FAKE_ENTER(DeviceCanAccessPeer);
    if (check_device(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && world().setting.peer(device, peer) != 0;
    return check_device(peer);
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute which, CUdevice from, CUdevice to) {
    FAKE_ENTER(DeviceGetP2PAttribute);
    if (from == to || check_device(from) != CUDA_SUCCESS || check_device(to) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_DEVICE;
    const bool reachable = world().setting.peer(from, to) != 0;
    *value = which == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : reachable;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    FAKE_ENTER(DevicePrimaryCtxRetain);
    if (const CUresult early = check_device(device); early != CUDA_SUCCESS) return early;
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    Context& primary = world().devices[size_t(device)]->context;
    ++primary.retained;
    *context = reinterpret_cast<CUcontext>(&primary);
    return primary.error;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    FAKE_ENTER(DevicePrimaryCtxRelease);
    if (const CUresult early = check_device(device); early != CUDA_SUCCESS) return early;
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    Context& primary = world().devices[size_t(device)]->context;
    if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    // The last one out takes a kernel's fault with it.
    if (--primary.retained == 0) primary.error = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    FAKE_ENTER(DevicePrimaryCtxGetState);
    if (const CUresult early = check_device(device); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    *flags = 0;
    *active = world().devices[size_t(device)]->context.retained > 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
    FAKE_ENTER(CtxGetCurrent);
    const auto& stack = this_thread().contexts;
    *context = stack.empty() ? nullptr : reinterpret_cast<CUcontext>(stack.back());
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    FAKE_ENTER(CtxSetCurrent);
    auto& stack = this_thread().contexts;
    if (stack.empty())
        stack.push_back(reinterpret_cast<Context*>(context));
    else
        stack.back() = reinterpret_cast<Context*>(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    FAKE_ENTER(CtxPushCurrent);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    this_thread().contexts.push_back(reinterpret_cast<Context*>(context));
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    FAKE_ENTER(CtxPopCurrent);
    auto& stack = this_thread().contexts;
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = reinterpret_cast<CUcontext>(stack.back());
    stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
    FAKE_ENTER(CtxGetDevice);
    FAKE_CURRENT(context);
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    FAKE_ENTER(CtxSynchronize);
    FAKE_CURRENT(context);
    {
        std::lock_guard lock(world().mutex);
        for (const auto& capture : world().captures) {
            for (const auto& [stream, member] : capture->members) {
                if (stream->context != context) continue;
                capture->invalid = true;
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
        }
    }
    wait_all(outstanding(context));
    std::lock_guard lock(world().mutex);
    return context->error;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    FAKE_ENTER(CtxEnablePeerAccess);
    FAKE_CURRENT(context);
    if (flags != 0 || peer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const int device = reinterpret_cast<Context*>(peer)->device;
    std::lock_guard lock(world().mutex);
    if (device == context->device) return CUDA_ERROR_INVALID_CONTEXT;
    if (world().setting.peer(context->device, device) == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return context->peers.insert(device).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    FAKE_ENTER(CtxGetStreamPriorityRange);
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

}  // extern "C"
