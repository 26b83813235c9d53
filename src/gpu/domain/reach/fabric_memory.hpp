// fabric_memory.hpp: the memory of a rank that the ranks of all hosts map, if they are in one NVLink domain: flags,
// packets, channels of messages and staging memory. It lies beside the memory that the ranks of a host share
// (domain_layout.hpp).
#pragma once
#include <vector>

#include "src/drivers/cuda/vmm.hpp"
#include "src/gpu/domain/domain_layout.hpp"

namespace weft::internal::cuda {

// Equal on all ranks. The memory before the slots of messages is zero when the domain begins.
struct FabricLayout {
    size_t staging_bytes, packets, probe, messages, message_slots, staging, bytes;
    FabricLayout(int ranks, int64_t staging_wanted) {
        const auto line = [](size_t at) { return (at + 255) / 256 * 256; };
        staging_bytes = size_t(staging_wanted) / 256 * 256;
        packets = line(sizeof(RankFlags));
        probe = line(packets + packet_memory_bytes(ranks));
        messages = line(probe + sizeof(ReachProbe));
        const MessageGeometry geometry{ranks};
        message_slots = messages + geometry.state_bytes();
        staging = line(messages + geometry.bytes());
        bytes = staging + staging_bytes;
    }
};

// Thread-bound to the rank.
struct FabricMemory {
    FabricLayout layout;
    VmmMemory own;                        // empty: not made
    std::vector<VmmMemory> imports;       // other ranks' memory
    std::vector<CUdeviceptr> bases = {};  // by rank, as this rank's kernels address it
    bool works = false;                   // equal on all ranks

    // Step machines meet over these flags, too, so that epochs and failures of a rank stand in one place.
    void bind(KernelArguments& arguments) const {
        arguments.domain = true;
        for (size_t peer = 0; peer < bases.size(); ++peer) {
            arguments.flags[peer] = reinterpret_cast<RankFlags*>(bases[peer]);
            arguments.packets[peer] = reinterpret_cast<PacketLine*>(bases[peer] + layout.packets);
            arguments.inputs[peer] = arguments.outputs[peer] =
                reinterpret_cast<std::byte*>(bases[peer] + layout.staging);
        }
    }
    void bind(MessageArguments& arguments) const {
        for (size_t peer = 0; peer < bases.size(); ++peer)
            arguments.areas[peer] = reinterpret_cast<std::byte*>(bases[peer] + layout.messages);
    }
};

}  // namespace weft::internal::cuda
