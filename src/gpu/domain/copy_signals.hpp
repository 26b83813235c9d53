// copy_signals.hpp: the words by which streams of ranks on one host wait for each other without kernels, in calls by copy
// engines (docs/design/gpu-copies.md). They lie in the ranks' rows of the segment, so that the host can end a wait.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "src/gpu/domain/domain_memory.hpp"

namespace weft::internal::cuda {

// enqueue() is for the rank's thread; the other functions are thread-safe.
class CopySignals {
  public:
    // Fails if the driver or the device lacks the memory operations. `memory` must outlive the object.
    static Result<std::unique_ptr<CopySignals>> make(std::shared_ptr<Segment> group, int rank,
                                                     const DomainMemory& memory);

    struct Call {
        uint32_t fingerprint;
        uint64_t timeout_ns;  // of a wait; 0: never
    };
    // Enqueues that this rank arrives at `stage` (ready or done), and a wait for all other ranks. The device's context
    // is current.
    Status enqueue(CUstream stream, KernelWait stage, const Call& call);

    // Called regularly: streams copy this clock.
    void set_clock(int64_t now_us);
    // The wait that has lasted too long, and its first missing rank. The clock is set at least every `precision_us`.
    std::optional<FailureReport> overdue(int64_t now_us, int64_t precision_us) const;
    // After an abort: all waits of this rank's streams end, present and future.
    void release();
    // Whether no stream of this rank is in such a call, as far as calls have begun: also in replays of graphs.
    bool idle() const;

  private:
    CopySignals(std::shared_ptr<Segment> group, int rank, const DomainMemory& memory)
        : group_(std::move(group)), rank_(rank), memory_(memory) {}
    Status find_addresses();
    Status copy_clock(CUstream stream);
    CopyReport& report() const { return memory_.reports().copies; }
    CUdeviceptr report_address(size_t offset) const {
        return memory_.reports_address() + offsetof(HostReports, copies) + offset;
    }
    CUdeviceptr word(int owner, KernelWait stage, int of) const {
        return rows_[size_t(owner)] + sizeof(StreamWord) * size_t(of) +
               (stage == KernelWait::ready ? 0 : sizeof(GpuRow::ready));
    }

    std::shared_ptr<Segment> group_;
    int rank_;
    const DomainMemory& memory_;
    std::vector<CUdeviceptr> rows_;                     // by rank: its `ready` words
    std::vector<CUstreamBatchMemOpParams> operations_;  // of one stage
};

}  // namespace weft::internal::cuda
