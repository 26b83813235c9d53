// device_launcher.hpp: launches the kernels of a rank's calls: it checks their streams, orders and numbers the
// launches, and involves the proxy. Thread-bound to the rank.
#pragma once
#include <optional>
#include <utility>

#include "src/gpu/engine/graph_registrations.hpp"
#include "src/gpu/engine/joined_gpu.hpp"
#include "src/planning/call_settings.hpp"

namespace weft::internal {

class DeviceLauncher {
  public:
    // `gpu` must outlive this object.
    explicit DeviceLauncher(JoinedGpu& gpu) : gpu_(gpu) {}

    // Checks the stream of the next call; a refused call has no effect.
    Status take_stream(void* stream);
    // Fails if another rank's same call is on this stream. For calls of all ranks only: others are not counted alike.
    Status claim(void* stream) { return gpu_.domain->launches().claim(static_cast<CUstream>(stream), facts_); }
    uint64_t timeout_of(const CallSettings& settings) const;  // in nanoseconds
    bool captures() const { return facts_.capturing; }
    // Whether other processes should use the buffers of the call in place from a graph on: register_captured() those.
    bool registers_captured() const { return registers_graphs_; }
    void register_captured(const void* buffer, size_t bytes) { graph_registrations_.add(buffer, bytes, facts_); }
    // Whether all ranks try to put the buffers of the call behind the switch: register_switched() those.
    bool registers_switched() const { return registers_switched_; }
    uint64_t capture_id() const { return facts_.capture_id; }
    void register_switched(uint64_t number, const void* buffer, size_t bytes) {
        graph_registrations_.add_switched(number, buffer, bytes, facts_);
    }
    bool awaits_switch() { return graph_registrations_.awaits_switch(); }
    uint32_t next_launch() { return ++launches_; }
    uint32_t launches() const { return launches_; }

    // Orders the stream behind the rank's calls so far, for a call without kernels.
    Status order(void* stream);
    // Enqueues the kernels of one call, in the order of the rank's calls. `enqueue(priority)` calls the functions
    // below.
    template <class Enqueue>
    Status in_order(void* stream, const CallSettings& settings, Enqueue&& enqueue) {
        const auto on = static_cast<CUstream>(stream);
        cuda::ContextScope scope(gpu_.kernels().context());
        WEFT_TRY(scope.take_status());
        auto priority = this->priority(settings.priority);
        if (!priority) return priority.take_status();
        const auto turn = gpu_.domain->launches().take_turn();
        WEFT_TRY(gpu_.domain->launches().order(on, facts_));
        WEFT_TRY(enqueue(*priority));
        return gpu_.domain->launches().note(on, facts_);
    }
    Status enqueue(const cuda::Kernel& kernel, const cuda::LaunchShape& shape, void* stream, void* arguments) const;
    // The last kernel of a call, which reports its end if `arguments` say so.
    template <class Arguments>
    Status enqueue_last(const cuda::Kernel& kernel, const cuda::LaunchShape& shape, void* stream,
                        Arguments& arguments) const {
        // A replay would report again that an old launch has ended.
        uint32_t* const ended = arguments.ended;
        if (facts_.capturing) arguments.ended = nullptr;
        const bool reports = arguments.ended != nullptr;
        Status enqueued = enqueue(kernel, shape, stream, &arguments);
        arguments.ended = ended;
        WEFT_TRY(std::move(enqueued));
        if (reports) gpu_.domain->launches().will_report(arguments.launch, shape.blocks);
        return ok();
    }
    // The same for a kernel that the proxy serves, if there is one. Arguments: of collectives or of messages.
    template <class Arguments>
    Status enqueue_served(const cuda::Kernel& kernel, const cuda::LaunchShape& shape, void* stream,
                          Arguments& arguments) const {
        if (gpu_.network) gpu_.network->launching(facts_.capturing, arguments.launch, shape.blocks);
        WEFT_TRY(enqueue_last(kernel, shape, stream, arguments));
        if (gpu_.network) gpu_.network->launched();
        return ok();
    }

  private:
    // The context must be current.
    Result<std::optional<int>> priority(int asked);

    JoinedGpu& gpu_;
    cuda::StreamFacts facts_;  // of the stream of the call
    cuda::KnownStreams known_streams_;
    GraphRegistrations graph_registrations_{gpu_};
    bool registers_graphs_ = false, registers_switched_ = false;
    uint32_t launches_ = 0;
    std::optional<std::pair<int, int>> priorities_;  // the device's lowest and highest, after the first query
};

}  // namespace weft::internal
