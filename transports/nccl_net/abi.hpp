// abi.hpp: the structs of NCCL's network plugins (ncclNet), versions 8 to 12, as NVIDIA documents them. A plugin exports
// one for each version that it serves, by the name ncclNetPlugin_vN. Functions behind the last one here are not called.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace weft::internal::nccl_net::abi {

inline constexpr int oldest = 8, newest = 12;
inline constexpr size_t handle_bytes = 128;  // of a listening comm, as connect() takes it
inline constexpr int requests_most = 32;     // of one comm at a time
inline constexpr int receives_most = 8;      // of one irecv; test() may write as many sizes

// ncclResult_t. Every other value is an error, too.
using Answer = int;
inline constexpr Answer success = 0;

// Bits of Properties::pointers; the first two are types of regMr, too.
inline constexpr int host_pointer = 1, cuda_pointer = 2, dma_buf_pointer = 4;
inline constexpr int host_device = 0;  // Properties::device_type of a device whose data no kernel has to unpack

// ncclDebugLogger_t, and the levels that a plugin gives it.
using Log = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
inline constexpr int log_warn = 2, log_info = 3, log_abort = 4;
// ncclProfilerCallback_t
using Profiler = Answer (*)(void** event, int type, void* parent, int64_t plugin, void* data);

// ncclNetCommConfig_t, from version 10.
struct Config {
    int traffic_class = -1;  // of the network; -1: the plugin's
};

template <int most>
struct VirtualDevice {
    int count;
    int devices[most];
};

// ncclNetProperties_t
template <int version>
struct Properties;
template <>
struct Properties<8> {
    char* name;
    char* pci_path;
    uint64_t guid;
    int pointers;
    int registers_for_all;
    int mbps;
    int port;
    float latency_us;
    int comms_most;
    int receives_most;
    int device_type;
    int device_version;
};
template <>
struct Properties<9> {
    char* name;
    char* pci_path;
    uint64_t guid;
    int pointers;
    int registers_for_all;
    int force_flush;
    int mbps;
    int port;
    float latency_us;
    int comms_most;
    int receives_most;
    int device_type;
    int device_version;
    VirtualDevice<4> members;
    size_t message_bytes_most;
    size_t collective_bytes_most;
};
template <>
struct Properties<10> : Properties<9> {};
template <>
struct Properties<11> {
    Properties<9> first;
    int request_bytes_most;
};
template <>
struct Properties<12> {
    char* name;
    char* pci_path;
    uint64_t guid;
    int pointers;
    int registers_for_all;
    int force_flush;
    int mbps;
    int port;
    float latency_us;
    int comms_most;
    int receives_most;
    int device_type;
    int device_version;
    VirtualDevice<8> members;
    size_t message_bytes_most;
    size_t collective_bytes_most;
    int request_bytes_most;
    int16_t rail;
    int16_t plane;
};

template <bool condition, class Then, class Else>
using If = std::conditional_t<condition, Then, Else>;

// ncclNet_t
template <int version>
struct Functions {
    // Sizes of messages; version 8 has int.
    using Size = If<version >= 9, size_t, int>;

    const char* name;
    If<version >= 11, Answer (*)(void** context, uint64_t comm, Config*, Log, Profiler),
       If<version == 10, Answer (*)(Log, Profiler), Answer (*)(Log)>>
        init;
    Answer (*devices)(int* count);
    Answer (*get_properties)(int device, Properties<version>*);
    If<version >= 11, Answer (*)(void* context, int device, void* handle, void** listening),
       Answer (*)(int device, void* handle, void** listening)>
        listen;
    If<version >= 11, Answer (*)(void* context, int device, void* handle, void** sending, void** in_kernels),
       If<version == 10, Answer (*)(int device, Config*, void* handle, void** sending, void** in_kernels),
          Answer (*)(int device, void* handle, void** sending, void** in_kernels)>>
        connect;
    Answer (*accept)(void* listening, void** receiving, void** in_kernels);
    Answer (*reg_mr)(void* comm, void* data, size_t bytes, int type, void** memory);
    Answer (*reg_mr_dma_buf)(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd, void** memory);
    Answer (*dereg_mr)(void* comm, void* memory);
    If<version >= 10,
       Answer (*)(void* sending, void* data, Size bytes, int tag, void* memory, void* profiled, void** request),
       Answer (*)(void* sending, void* data, Size bytes, int tag, void* memory, void** request)>
        isend;
    If<version >= 10,
       Answer (*)(void* receiving, int count, void** data, Size* bytes, int* tags, void** memory, void** profiled,
                  void** request),
       Answer (*)(void* receiving, int count, void** data, Size* bytes, int* tags, void** memory, void** request)>
        irecv;
    Answer (*iflush)(void* receiving, int count, void** data, int* bytes, void** memory, void** request);
    Answer (*test)(void* request, int* done, int* bytes);
    Answer (*close_send)(void* sending);
    Answer (*close_recv)(void* receiving);
    Answer (*close_listen)(void* listening);
};

}  // namespace weft::internal::nccl_net::abi
