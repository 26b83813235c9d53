// call_inputs.hpp: the objects of a communicator from which the API and the call queues make calls.
#pragma once
#include <algorithm>
#include <span>

#include "src/comm/call_placement.hpp"
#include "src/comm/registered_buffers.hpp"
#include "src/comm/user_reductions.hpp"
#include "src/segment/arena.hpp"

namespace weft::internal {

// A buffer for coalesced calls: memory that peers can map, if the arena has room.
// Thread-bound to the rank; one call at a time uses it.
class CoalescingBuffer {
  public:
    std::span<std::byte> of_size(size_t bytes) {
        if (memory_.bytes() < bytes && heap_.size() < bytes) {
            auto memory = ArenaMemory::allocate(std::max(bytes, 2 * memory_.bytes()));
            if (memory)
                memory_ = std::move(*memory);
            else
                heap_.resize(bytes);
        }
        return {memory_.bytes() < bytes ? heap_.data() : memory_.data(), bytes};
    }
    uint64_t bytes() const { return memory_.bytes() + heap_.size(); }

  private:
    ArenaMemory memory_;
    std::vector<std::byte> heap_;
};

struct CallInputs {
    explicit CallInputs(RankContext& context)
        : settings(context), placement(context, settings), reductions(context), buffers(context) {}

    LaterSettings settings;
    CallPlacement placement;
    UserReductions reductions;
    RegisteredBuffers buffers;
    CoalescingBuffer coalescing;
};

}  // namespace weft::internal
