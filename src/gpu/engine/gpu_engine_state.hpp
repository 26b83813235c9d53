// gpu_engine_state.hpp: what GpuEngine holds, for the files that make it: device_joining.cpp (how ranks come to serve
// device memory), device_launching.cpp (calls), device.cpp (the rest: places, failures, leaving).
#pragma once
#include <algorithm>
#include <map>

#include "src/control/service.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/gpu/domain/buffer_registry.hpp"
#include "src/gpu/domain/domain.hpp"
#include "src/gpu/engine/device_buffers.hpp"
#include "src/gpu/engine/device_failure.hpp"
#include "src/gpu/engine/device_messages.hpp"
#include "src/gpu/engine/device_network.hpp"
#include "src/gpu/engine/device_plan.hpp"
#include "src/gpu/engine/device_windows.hpp"
#include "src/gpu/engine/gpu_engine.hpp"
#include "src/gpu/engine/host_staging.hpp"
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/planning/plan_cache.hpp"

namespace weft::internal {

constexpr uint64_t nanoseconds_of(int64_t milliseconds) {
    return uint64_t(std::min(milliseconds, INT64_MAX / 1'000'000)) * 1'000'000;
}

// A plan's kernel and arguments, but for the buffers.
struct PreparedLaunch {
    DevicePlan plan;
    const cuda::Kernel* kernel;
    cuda::LaunchShape shape;
    cuda::KernelArguments arguments;
    size_t send_bytes, receive_bytes;      // that this rank holds
    size_t send_begins, receive_begins;    // of steps: where in the whole
    bool send_in_place, receive_in_place;  // peers use it where it lies, if they may
    bool of_tokens;                        // nothing is to be moved, and ranks meet over connections alone
};

struct GpuEngine::State {
    const cuda::Driver* driver = nullptr;
    std::shared_ptr<const cuda::KernelSet> kernels;  // null: no kernels run on this rank's device, or it has none
    cuda::Context bare;                              // without kernels, of a device whose memory is copied
    bool copies = false;                             // see GpuEngine
    std::unique_ptr<HostStaging> copied[2];          // by GpuEngine::Copied, once there are some
    DeviceFacts facts{};
    std::string unsupported_reason;  // why device memory is not served; empty: it is, once begun

    std::shared_ptr<Segment> group;
    int rank = 0;
    int64_t deadline_us = 0;  // 0: none
    int64_t next_look_us = 0;
    std::unique_ptr<cuda::Domain> domain;
    std::shared_ptr<const Catalog> catalog;
    std::shared_ptr<const Machines> machines;
    DeviceLayout layout;
    std::map<uint8_t, DeviceLayout> preferred;  // see prefer()
    bool sharing = false;                       // another rank of this process is on this device
    bool exports_buffers = false;  // the ranks reach each other's memory: large messages may stay where they are
    std::unique_ptr<cuda::BufferRegistry> buffer_registry;
    std::unique_ptr<DeviceNetwork> network;  // null: one host

    uint64_t timeout_ns = 0;
    PlansByKey<PreparedLaunch> plans;
    PreparedLaunch* prepared = nullptr;
    std::vector<PreparedLaunch*> coalesced;          // of one kernel
    std::vector<cuda::MessageItem> coalesced_items;  // of all but the first
    uint32_t launches = 0;
    cuda::StreamFacts stream;
    std::unique_ptr<DeviceMessages> messages;
    cuda::MessageArguments message_arguments{};
    std::unique_ptr<DeviceWindows> windows;  // null until there is one
    cuda::AccessArguments access_arguments{};
    std::vector<SignalWait> waits;  // of the call
    std::unique_ptr<DeviceBuffers> buffers;
    PlannedOperations known;

    std::shared_ptr<Service> service;
    uint64_t timer = 0;                 // of the service thread
    std::atomic<int64_t> failed_us{0};  // when a failure was seen that news may explain better; 0: none
    DepartedPeers departed_peers;       // the service thread's
    bool accused = false;               // likewise: somebody, at the last look

    int device() const { return facts.ordinal; }
    const cuda::Context* context() const { return kernels ? &kernels->context() : bare.handle() ? &bare : nullptr; }
    void disable(std::string why) {
        unsupported_reason = std::move(why);
        copies = false;
        buffer_registry.reset();
        network.reset();
        if (domain) cuda::Domain::retire(std::move(domain));
    }
    // Of all ranks' devices, where there are no kernels.
    const char* why_copies() const {
        return group->header().agreed.gpu_path == GpuPath::copies
                   ? "WEFT_GPU_PATH is copies"
                   : "no kernels of Weft's run on some rank's device, as its log says";
    }
    void tell_of_sharing(const std::vector<int>& elsewhere) const;
    void look_again();
    void look(bool at_others, bool may_wait);
    Status check_others(const std::vector<int>& missing);
    bool await_health(const DeviceDiagnosis& observer, bool may_wait);
    const DeviceLayout& layout_for(uint8_t preference) const {
        const auto place = preferred.find(preference);
        return place == preferred.end() ? layout : place->second;
    }
    uint64_t timeout_of(const CallSettings& settings) const;  // in nanoseconds
    Result<PreparedLaunch*> plan(const Operation& operation, uint8_t preference);
    Result<PreparedLaunch*> plan_of(const DeviceCall& call);
    // Into the table of messages, for a kernel that comes behind.
    Status note(std::span<const cuda::MessageItem> items, CUstream on, std::optional<int> priority);
    void export_buffers(PreparedLaunch& it, const DeviceCall& call) const;
    Status take_stream(void* stream_of_call);
    DeviceMessages& own_messages();
    DeviceWindows& own_windows();
    // Where kernels of `peer` find what is sent; null: they do not.
    const std::byte* remote_address(const DeviceMessage& message, int peer) const;
    Status enqueue(const cuda::Kernel& kernel, const cuda::LaunchShape& shape, CUstream on, void* arguments) const;
    // A kernel that the proxy serves, where there is one. Arguments: of collectives or of messages.
    template <class Arguments>
    Status enqueue_served(const cuda::Kernel& kernel, const cuda::LaunchShape& shape, CUstream on,
                          Arguments& arguments) const;
    // The context is current.
    Result<std::optional<int>> priority(int asked);
    std::optional<std::pair<int, int>> priorities;  // the device's lowest and highest number, once asked for
};

}  // namespace weft::internal
