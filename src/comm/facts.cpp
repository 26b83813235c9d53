#include "src/comm/facts.hpp"

namespace weft::internal {

MemoryUse memory_use(Communicator& communicator) {
    const RankContext& context = communicator.context();
    const CallInputs& inputs = communicator.inputs();
    GpuEngine* const device = context.device.get();
    return {.flag_block = uint64_t(context.flag_block->reserved()) + SegmentLayout::flag_line_stride * flag_slots,
            .connections = context.planner.connection_bytes(),
            .heap = communicator.calls().heap_bytes() + context.planner.scratch_bytes() +
                    inputs.placement.heap_bytes() + inputs.coalescing.bytes() +
                    (device ? device->staging().bytes() : 0),
            .device = device ? device->device_bytes() : 0};
}

std::string explain(Communicator& communicator, const Operation& operation) {
    const RankContext& context = communicator.context();
    const uint8_t preference = communicator.inputs().settings.get().preference;
    return context.planner.explain(operation, preference) +
           (context.device ? context.device->explain(operation, preference) : "");
}

std::vector<int> hosts_of_ranks(Communicator& communicator) {
    const Segment& segment = *communicator.context().segment;
    std::vector<int> hosts;
    for (int rank = 0; !segment.one_host() && rank < segment.ranks(); ++rank)
        hosts.push_back(segment.rank_info(rank).host);
    return hosts;
}

Result<int> cuda_device(Communicator& communicator) {
    const GpuEngine* const device = communicator.context().device.get();
    if (device && device->facts().use != DeviceFacts::none) return int(device->facts().ordinal);
    return fail(error::gpu_unavailable,
                "this communicator has no device: none was current when it was made (cudaSetDevice makes one current)");
}

}  // namespace weft::internal
