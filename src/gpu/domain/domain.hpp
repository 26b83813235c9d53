// domain.hpp: a rank's resources for a communicator on GPUs. These are device memory that all ranks of its host can
// access, host memory that its kernels report to, and the order of its launches. The ranks of a host make the domain
// together when they join (domain_join.hpp). The domain works for all ranks or for none.
//
// The memory belongs to the rank. Peers write to it until their kernels have ended, and unmap it when they leave. A
// rank that leaves hands its domain over (retire()). Its memory is unused when every other rank has left or died.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/gpu/domain/copy_signals.hpp"
#include "src/gpu/domain/domain_join.hpp"
#include "src/gpu/domain/multicast/switched_buffers.hpp"
#include "src/gpu/domain/multicast/switched_windows.hpp"

namespace weft::internal::cuda {

// Thread-bound to the rank unless stated otherwise.
class Domain {
  public:
    // connections: of the step machines, equal on all ranks; none: there are no programs to bind.
    // multicast_ranks: from how many ranks on the switch pays, unless it is always used.
    Domain(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels, Connections connections,
           int multicast_ranks);
    ~Domain();

    // Reports an obstacle of this rank, which advance() reports to all ranks. Called before the first step.
    void object(const Status& why) { join_.object(why); }
    // One step of making the domain; it never blocks. True once all ranks know whether the domain works. A failure is
    // this rank's own, and the caller must report it to the others.
    Result<bool> advance() { return join_.advance(); }
    // The ranks that advance() waits for.
    std::vector<int> missing() const { return join_.missing(); }
    // Why the domain does not work, equal on all ranks; empty: it works.
    const std::string& obstacle() const { return join_.obstacle(); }
    // Why host memory replaces the device memory of some or all ranks, equal on all ranks; empty: it replaces none.
    const std::string& fallback_reason() const { return join_.fallback_reason(); }
    std::string fallback_text() const { return join_.fallback_text(); }  // ", through host memory to and from rank 3"

    // Whether the ranks have staging memory for the switch, or why it could not be made; equal on all ranks.
    const MulticastJoin& multicast() const { return join_.multicast(); }
    // Whether kernels reach the memory of all hosts' ranks, or why not; equal on all ranks.
    const FabricJoin& fabric() const { return join_.fabric(); }

    // The arguments of kernels, and the ends that the proxy serves.
    const DomainMemory& memory() const { return memory_; }
    DomainMemory& memory() { return memory_; }
    // The order of launches, and whether kernels are still running.
    LaunchOrder& launches() { return order_; }
    const LaunchOrder& launches() const { return order_; }
    // Called when the domain works and the ranks map each other's buffers.
    void make_copy_signals();
    CopySignals* copy_signals() const { return copy_signals_.get(); }  // null: the ranks cannot use copy engines
    // Called when the domain works and the ranks have staging memory for the switch.
    void make_switched_memory(const std::shared_ptr<const KernelSet>& kernels);
    // Null: there are none.
    SwitchedWindows* switched_windows() const { return switched_windows_.get(); }
    SwitchedBuffers* switched_buffers() const { return switched_buffers_.get(); }
    // The reports of kernels. Thread-safe.
    const HostReports& reports() const { return memory_.reports(); }
    // The first failure that a kernel has reported. Thread-safe.
    KernelFailure failure() const;

    // The rank leaves. Its memory is unused at once if all others have left, or when a later domain of the process
    // retires. It is freed when the process has no domain left, because freeing waits for all work on the device.
    static void retire(std::unique_ptr<Domain> domain);

  private:
    // Unmaps the memory of others, unless kernels of ours may still run. May wait for the device.
    void unmap();
    // Whether we have unmapped the others' memory, and they have unmapped ours or died.
    bool is_unused() const;

    DomainRanks ranks_;
    DomainMemory memory_;
    LaunchOrder order_;
    DomainJoin join_;
    std::unique_ptr<CopySignals> copy_signals_;
    std::unique_ptr<SwitchedWindows> switched_windows_;
    std::shared_ptr<SwitchedBuffers> switched_buffers_;
    bool unmapped_ = false;
};

}  // namespace weft::internal::cuda
