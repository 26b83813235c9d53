// message_calls.hpp: messages on device memory: one kernel for all messages of a group. Thread-bound to the rank.
#pragma once
#include <memory>
#include <span>

#include "src/gpu/engine/device_launcher.hpp"
#include "src/gpu/engine/gpu_calls.hpp"
#include "src/gpu/engine/messages/device_messages.hpp"
#include "src/gpu/kernels/message_arguments.hpp"

namespace weft::internal {

class MessageCalls final : public GpuMessages {
  public:
    // Both must outlive this object.
    MessageCalls(JoinedGpu& gpu, DeviceLauncher& launcher) : gpu_(gpu), launcher_(launcher) {}

    Status prepare(std::span<const DeviceMessage> messages, void* stream) override;
    Status prepare(const CountedMessages& messages, void* stream) override;
    Status launch(void* stream, const CallSettings& settings) override;

    // Stores items in the table of messages, for a kernel that follows on the stream.
    Status store(std::span<const cuda::MessageItem> items, void* stream, std::optional<int> priority);
    const cuda::MessageItem* table() const { return arguments_.table; }

  private:
    DeviceMessages& arranged();
    DeviceMessages::RemoteAddress remote_addresses();
    Status enqueue(void* stream, std::optional<int> priority, int blocks_max);

    JoinedGpu& gpu_;
    DeviceLauncher& launcher_;
    std::unique_ptr<DeviceMessages> messages_;  // null before the first call
    cuda::MessageArguments arguments_{};
};

}  // namespace weft::internal
