// network_memory.hpp: where a rank's slots for ranks of other hosts lie. Best is the device's own memory, which the NIC
// reads and writes (GPUDirect RDMA). Otherwise they are pinned host memory.
#pragma once
#include <string>

#include "src/gpu/domain/network_slots.hpp"
#include "transports/transport.hpp"

namespace weft::internal {

struct NetworkMemory {
    cuda::NetworkSlots sent, received;
    std::string text;  // for the log: "sends and receives device memory directly over verbs"
};

// The rank and its device, and the transport to all ranks of other hosts (null: there are several).
struct NetworkMemoryWanted {
    int rank = 0;
    const Transport* transport = nullptr;
    size_t sent_bytes = 0, received_bytes = 0;
};

// Takes memory of an earlier communicator if there is some. Registers it with the transport, which takes milliseconds.
// cuda.resources: there is no pinned memory. A device that the NIC cannot reach is no failure. Thread-safe.
Result<NetworkMemory> make_network_memory(const cuda::Context& context, const NetworkMemoryWanted& wanted);

}  // namespace weft::internal
