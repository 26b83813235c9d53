// transfer_engine.hpp: moves the messages with one peer at a time, through slots, over a network or as zero-copy messages.
#pragma once
#include "src/executor/progress.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/p2p/transfers.hpp"
#include "src/peer_access/cma.hpp"

namespace weft::internal {

// Owned by an Exchange. Thread-bound to the rank. Each function returns moved, blocked or failed.
class TransferEngine {
  public:
    // See Exchange.
    TransferEngine(Segment& group, int rank, const CpuKernels& cpu_kernels, size_t streamed_least, Transfers& transfers)
        : segment_(&group),
          rank_(rank),
          cpu_kernels_(&cpu_kernels),
          streamed_least_(streamed_least),
          memory_(group, rank),
          transfers_(&transfers) {}

    Progress send(TransferPeer& peer);
    Progress receive(int rank, TransferPeer& peer);
    Progress receive_remote(int rank, TransferPeer& peer);
    Progress move_own(TransferPeer& self);
    // Copies a piece of a message into a slot, or a piece of a message of `whole` bytes into the user's buffer.
    void copy_in(TransferPeer& peer, void* slot, const void* from, size_t bytes) const;
    void copy_out(void* to, const void* from, size_t bytes, size_t whole) const;

    Progress fails(Status failure) {
        failure_ = std::move(failure);
        return Progress::failed;
    }
    Status take_failure() { return std::move(failure_); }
    // The index of the message that failed, if a single one did.
    int differing() const { return differing_; }

  private:
    Progress pull(int rank, TransferPeer& peer);
    Status offer_targets(TransferPeer& peer);
    Progress differs(int rank, const Transfer& transfer, const SlotInfo& came);

    Segment* segment_;
    int rank_;
    const CpuKernels* cpu_kernels_;
    size_t streamed_least_;
    Cma memory_;
    Transfers* transfers_;
    int differing_ = Transfers::none;
    Status failure_;
};

}  // namespace weft::internal
