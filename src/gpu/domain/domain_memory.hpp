// domain_memory.hpp: the memory of a rank's domain: its own on the device, the addresses of the other ranks' memory,
// and pinned host memory. It sets the arguments of kernels that follow from these. Thread-bound to the rank.
#pragma once
#include <memory>
#include <vector>

#include "src/gpu/domain/domain_layout.hpp"
#include "src/gpu/domain/domain_ranks.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/domain/memory_pool.hpp"
#include "src/gpu/domain/pinned_pages.hpp"
#include "src/gpu/domain/reach/fabric_memory.hpp"

namespace weft::internal::cuda {

class DomainMemory {
  public:
    // `ranks` must outlive this object. connections: see Domain.
    DomainMemory(const DomainRanks& ranks, std::shared_ptr<const KernelSet> kernels, Connections connections);

    // Maps the abort flag and allocates host memory.
    Status begin();
    // Allocates device memory of this kind. Earlier memory is kept, because peers may map it until they leave.
    Status allocate(ExportableMemory::ExportMethod way);
    // The slots for ranks of other hosts, by direction: their sizes, and their memory. Set before begin(), and before the
    // ends are asked for.
    size_t network_bytes(bool incoming) const;
    void set_network_slots(NetworkSlots sent, NetworkSlots received) {
        sent_ = std::move(sent);
        received_ = std::move(received);
    }
    const NetworkSlots& network_slots(bool incoming) const { return incoming ? received_ : sent_; }
    // Staging memory for the switch (multicast_join.hpp), or empty.
    MulticastMemory& multicast() { return multicast_; }
    // The memory for kernels of several hosts (fabric_join.hpp), or without `own`.
    FabricMemory& fabric() { return fabric_; }
    // Gives all memory to the pool: no rank uses it any more.
    void give_to_pool();

    const DomainLayout& layout() const { return layout_; }
    const KernelSet& kernels() const { return *kernels_; }
    const std::shared_ptr<SharedAbortFlag>& shared_abort_flag() const { return shared_abort_flag_; }
    const ExportableMemory& own() const { return memory_; }
    uint64_t device_bytes() const {
        return memory_.bytes() + unused_.bytes() + sent_.device.bytes() + received_.device.bytes() +
               multicast_.memory.bytes() + fabric_.own.bytes();
    }
    // By rank, its memory as this rank's kernels address it; 0: not mapped, or a remote rank's.
    std::vector<CUdeviceptr>& bases() { return bases_; }
    HostReports& reports() const { return *static_cast<HostReports*>(host_.reports.data()); }
    CUdeviceptr reports_address() const { return host_.reports.address(); }
    // The contents of the program memory.
    std::vector<std::byte> programs() const;

    // The ends that the proxy serves, those of messages last; without them if ranks of other hosts are reached by fabric
    // handles. Their words have no addresses before begin().
    std::vector<RemoteEnd> remote_ends() const;

    // Sets the arguments that do not change from launch to launch.
    void bind(KernelArguments& arguments) const;
    // The same for a kernel that uses the switch: its staging memory.
    void bind_multicast(KernelArguments& arguments) const;
    // Sets a step machine's program, by its number among the connections.
    void bind_program(KernelArguments& arguments, size_t index) const;
    // Sets internal buffers, with a token for each rank's part, for a call without data.
    void bind_tokens(KernelArguments& arguments) const;
    // The same for the kernels of messages and of one-sided calls.
    void bind(MessageArguments& arguments) const;
    void bind(AccessArguments& arguments) const;

  private:
    // This rank's, as all its kernels use them.
    uint32_t* ended() const;  // for kernels: HostReports::ended
    RankFlags* own_flags() const {
        return reinterpret_cast<RankFlags*>((fabric_.works ? fabric_.bases : bases_)[size_t(ranks_.rank)]);
    }
    // Arguments that message kernels and one-sided kernels have in common.
    template <class Arguments>
    void bind_waiting(Arguments& arguments) const;
    // The size of pinned host memory for other hosts: words of remote connections, then a RemoteMessageArea per remote
    // rank.
    size_t remote_bytes() const;

    const DomainRanks& ranks_;
    std::shared_ptr<const KernelSet> kernels_;
    Connections connections_;
    DomainLayout layout_;
    std::shared_ptr<SharedAbortFlag> shared_abort_flag_;
    const uint32_t* abort_ = nullptr;  // the address in this rank's kernels
    HostMemory host_;
    NetworkSlots sent_, received_;
    ExportableMemory memory_;
    MulticastMemory multicast_;
    FabricMemory fabric_;
    ExportableMemory unused_;         // of a method that failed: peers may map it until they leave
    std::vector<CUdeviceptr> bases_;  // by rank
};

}  // namespace weft::internal::cuda
