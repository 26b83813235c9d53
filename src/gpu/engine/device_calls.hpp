// device_calls.hpp: calls on device memory, as the communicator passes them to the GPU's engine (gpu_engine.hpp).
// Values; knows no CUDA.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/base/operation.hpp"
#include "src/gpu/domain/gpu_row.hpp"
#include "src/p2p/message_mark.hpp"
#include "src/p2p/peer_buffers.hpp"
#include "src/planning/call_settings.hpp"
#include "src/rma/one_sided.hpp"

namespace weft::internal {

// Whether a plan exists for the collective on device memory: users can choose its algorithms.
constexpr bool has_device_form(Collective collective) {
    return collective >= Collective::all_reduce && collective <= Collective::scatter;
}

// A point-to-point message, or one of a collective with uneven parts.
struct DeviceMessage {
    int peer;
    bool outgoing;
    void* data;  // read only if outgoing
    uint64_t count;
    weftDataType_t type;
    MessageCaller by;
    bool mapped;  // see BufferPlacement
};

// A weftAlltoAllv with counts in device memory.
struct CountedMessages {
    const CountsOnDevice* counts;
    const void* send;
    void* receive;
    weftDataType_t type;
    bool mapped;  // see BufferPlacement
};

struct DeviceCall {
    Operation operation;  // without its choice
    const void* send;
    void* receive;
    const void* scalar;  // of a pre-multiplied sum
    void* stream;
    bool mapped;            // see BufferPlacement
    bool send_mapped;       // likewise
    bool scalar_on_device;  // the kernel reads it; otherwise it is read at once
    CallSettings settings;
};

// The facts that a rank sends before a collective by copy engines. All ranks read the same offers, so all decide alike.
struct CopyOffer {
    uint64_t operation;                // the fingerprint of its call
    uint64_t refusal;                  // a CopyRefusal
    uint64_t send[copying_ranks_max];  // by rank: the send buffer in that rank's addresses
};
enum class CopyRefusal : uint64_t { none, other_call, operations, queues, shared, unmapped, many };

// A one-sided call. Its data and its window are device memory.
struct DeviceAccess {
    OneSidedCall call;
    void* stream;
    CallSettings settings;
};

// A buffer of a call, as far as the rank has data in it.
struct DeviceSpan {
    const void* address;
    size_t bytes;
};

// The same with the name of the argument.
struct DeviceArgument {
    const char* name;
    DeviceSpan span;
};

struct BufferPlacement {
    Space space;
    bool mapped;       // both are cuMemAlloc or weftMemAlloc memory: all devices with peer access can access it
    bool send_mapped;  // the first one is
};

}  // namespace weft::internal
