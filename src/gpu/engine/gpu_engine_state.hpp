// gpu_engine_state.hpp: the state of GpuEngine, shared by its sources: device_joining.cpp (joining),
// device_launching.cpp (calls), device_access.cpp (windows) and gpu_engine.cpp (the rest).
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

// A plan's kernel and its arguments, except for the buffers.
struct PreparedLaunch {
    DevicePlan plan;
    const cuda::Kernel* kernel;
    cuda::LaunchShape shape;
    cuda::KernelArguments arguments;
    size_t send_bytes, receive_bytes;      // on this rank
    size_t send_begins, receive_begins;    // of step algorithms: the offset in the whole
    bool send_in_place, receive_in_place;  // peers use it in place if it is mapped
    bool of_tokens;                        // no data: ranks meet over connections only
};

struct GpuEngine::State {
    const cuda::Driver* driver = nullptr;
    std::shared_ptr<const cuda::KernelSet> kernels;  // null: the rank has no device, or no kernels run on it
    cuda::Context bare;                              // of a device without kernels, whose memory is staged
    bool copies = false;                             // see GpuEngine
    std::unique_ptr<HostStaging> copied[2];          // by GpuEngine::Copied, made at first use
    DeviceFacts facts{};
    std::string unsupported_reason;  // why device memory is not supported; empty: it is, after begin()

    std::shared_ptr<Segment> group;
    int rank = 0;
    int64_t deadline_us = 0;  // 0: none
    int64_t next_look_us = 0;
    std::unique_ptr<cuda::Domain> domain;
    std::shared_ptr<const Catalog> catalog;
    std::shared_ptr<const Machines> machines;
    DeviceLayout layout;
    std::map<uint8_t, DeviceLayout> preferred;  // see prefer()
    bool sharing = false;                       // another rank of this process uses this device
    bool exports_buffers = false;               // ranks access each other's memory: large buffers can be used in place
    std::unique_ptr<cuda::BufferRegistry> buffer_registry;
    std::unique_ptr<DeviceNetwork> network;  // null: one host

    uint64_t timeout_ns = 0;
    PlansByKey<PreparedLaunch> plans;
    PreparedLaunch* prepared = nullptr;
    std::vector<PreparedLaunch*> coalesced;          // all of one kernel
    std::vector<cuda::MessageItem> coalesced_items;  // of all calls except the first
    uint32_t launches = 0;
    cuda::StreamFacts stream;
    std::unique_ptr<DeviceMessages> messages;
    cuda::MessageArguments message_arguments{};
    std::unique_ptr<DeviceWindows> windows;  // null until there is one
    cuda::AccessArguments access_arguments{};
    std::vector<SignalWait> waits;  // of the current call
    std::unique_ptr<DeviceBuffers> buffers;
    PlannedOperations known;

    std::shared_ptr<Service> service;
    uint64_t timer = 0;                 // of the service thread
    std::atomic<int64_t> failed_us{0};  // when a failure was seen whose cause may still arrive; 0: none
    DepartedPeers departed_peers;       // used by the service thread
    bool accused = false;               // used by the service thread: the last look blamed a rank

    int device() const { return facts.ordinal; }
    const cuda::Context* context() const { return kernels ? &kernels->context() : bare.handle() ? &bare : nullptr; }
    void disable(std::string why) {
        unsupported_reason = std::move(why);
        copies = false;
        buffer_registry.reset();
        network.reset();
        if (domain) cuda::Domain::retire(std::move(domain));
    }
    // The reason, for all ranks.
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
    // Stores items in the table of messages, for a kernel that follows.
    Status note(std::span<const cuda::MessageItem> items, CUstream on, std::optional<int> priority);
    void export_buffers(PreparedLaunch& it, const DeviceCall& call) const;
    Status take_stream(void* stream_of_call);
    DeviceMessages& own_messages();
    DeviceWindows& own_windows();
    // The address of the sent data in kernels of `peer`; null: they cannot access it.
    const std::byte* remote_address(const DeviceMessage& message, int peer) const;
    Status enqueue(const cuda::Kernel& kernel, const cuda::LaunchShape& shape, CUstream on, void* arguments) const;
    // Enqueues a kernel that the proxy serves, if there is one. Arguments: of collectives or of messages.
    template <class Arguments>
    Status enqueue_served(const cuda::Kernel& kernel, const cuda::LaunchShape& shape, CUstream on,
                          Arguments& arguments) const;
    // The context must be current.
    Result<std::optional<int>> priority(int asked);
    std::optional<std::pair<int, int>> priorities;  // the device's lowest and highest priority, after the first query
};

}  // namespace weft::internal
