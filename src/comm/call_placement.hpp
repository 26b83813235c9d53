// call_placement.hpp: finds the memory space and the stream of a call: host memory, the device, or host copies of device
// memory. Each call looks its buffers up again, because the user may have freed them since.
#pragma once
#include "src/comm/call.hpp"
#include "src/comm/later_settings.hpp"

namespace weft::internal {

// Also used while streams drive the communicator. After weftUnhandledCudaError the caller calls Communicator::die().
class CallPlacement {
  public:
    CallPlacement(RankContext& context, const LaterSettings& settings) : context_(context), settings_(settings) {}

    // Finds where the buffers of a checked call are, and writes `settings`, `space`, `queued`, `mapped` and
    // `copied`.
    // Fails if the call cannot be served.
    Status place(Call& call);
    // The same for counts that a kernel will read. Also finds how many elements the buffers can hold.
    Status place_counts(const Call& call, CountsOnDevice& counts);
    // Whether the scalar of a reduction is memory of this rank's device.
    Status check_device_scalar(const void* scalar, size_t bytes);
    uint64_t heap_bytes() const { return tokens_.size(); }

  private:
    // The buffers of a call as the GPU engine checks them.
    struct Buffers {
        DeviceArgument send, receive;
        bool sends, receives;   // whether this rank uses them
        const void* on_device;  // counts or a stream that are on a device; null: none
    };
    Status place_barrier(Call& call, CollectiveCall& barrier);
    Status place_barrier_on_device(Call& call);
    Buffers buffers_of(const Call& call) const;
    Status check_operand(const Operation& operation, const Operand& operand, Space space);

    RankContext& context_;
    const LaterSettings& settings_;
    std::vector<std::byte> tokens_;  // the data that a barrier gathers
};

}  // namespace weft::internal
