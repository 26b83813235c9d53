// device_collectives.hpp: collectives on device memory: the plan, kernel and arguments of each key are computed once;
// each call adds its buffers and launches. Thread-bound to the rank.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/gpu/engine/device_launcher.hpp"
#include "src/gpu/engine/gpu_calls.hpp"
#include "src/gpu/engine/messages/message_calls.hpp"
#include "src/planning/plan_cache.hpp"

namespace weft::internal {

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

class DeviceCollectives final : public GpuCollectives {
  public:
    // All must outlive this object. The table of messages holds the items of coalesced calls.
    DeviceCollectives(JoinedGpu& gpu, DeviceLauncher& launcher, MessageCalls& table)
        : gpu_(gpu), launcher_(launcher), table_(table) {}

    void prefer(uint8_t preference, const CallPreference& wanted) override;
    Status prepare(const DeviceCall& call) override;
    const Operation& prepared() const override { return prepared_->plan.operation; }
    void register_captured(const DeviceCall& call) override;
    bool awaits_switch() override { return launcher_.awaits_switch(); }
    Status launch(const DeviceCall& call) override;
    bool joins() const override;
    Status prepare_coalesced(std::span<const DeviceCall> calls) override;
    const Operation& prepared_coalesced(size_t place) const override { return coalesced_[place]->plan.operation; }
    Status launch_coalesced(std::span<const DeviceCall> calls) override;
    const DeviceLayout& layout_for(uint8_t preference) const;

  private:
    Result<PreparedLaunch*> plan(const Operation& operation, uint8_t preference);
    Result<PreparedLaunch*> plan_of(const DeviceCall& call);
    void export_buffers(PreparedLaunch& it, const DeviceCall& call);
    void export_places(const PreparedLaunch& it, cuda::KernelArguments& arguments) const;

    JoinedGpu& gpu_;
    DeviceLauncher& launcher_;
    MessageCalls& table_;
    std::map<uint8_t, DeviceLayout> preferred_;  // see prefer()
    PlansByKey<PreparedLaunch> plans_;
    PreparedLaunch* prepared_ = nullptr;
    std::vector<PreparedLaunch*> coalesced_;          // all of one kernel
    std::vector<cuda::MessageItem> coalesced_items_;  // of all calls except the first
};

}  // namespace weft::internal
