// one_sided.hpp: one-sided calls: put, get, signal and waiting for signals (docs/design/rma.md). Windows on this host are
// accessed in place or by CMA. For other windows the rank sends a request to the owner.
#pragma once
#include <map>
#include <optional>
#include <span>

#include "src/base/shared_memory.hpp"
#include "src/rma/host_windows.hpp"
#include "src/rma/one_sided_call.hpp"
#include "src/rma/remote_copy.hpp"
#include "src/rma/rma_messages.hpp"
#include "src/rma/signals.hpp"

namespace weft::internal {

// Owned by the communicator. Thread-bound to the rank. One call at a time: begin(), then advance() until done. Nothing
// blocks.
class OneSided {
  public:
    struct Settings {
        PeerAccess::Settings access;
        const CpuKernels* cpu_kernels;
        UserMemory* user_memory;
    };
    using Connect = std::function<Status(int peer, PeerLink& link)>;
    using CalledBy = std::function<bool(int peer)>;
    using Disconnect = std::function<void(int peer)>;  // ends the link and all that it does with this rank's memory
    OneSided(Segment& group, int rank, const Settings& settings, Connect connect, CalledBy called_by,
             Disconnect disconnect);

    // ---- Windows. A window has the same number on all ranks. open() accepts requests of other ranks; complete() adds
    // the parts of all ranks.
    Result<WindowPart> open(uint32_t number, void* address, size_t bytes, size_t& heap_used);
    void complete(uint32_t number, std::span<const WindowPart> parts);
    void close(uint32_t number, bool messages) { windows_.close(number, messages); }  // see HostWindows

    // ---- A call. If begin() fails, nothing has changed.
    Status begin(const OneSidedCall& call);
    Progress advance();  // moved, blocked, done or failed
    const RankSet& missing() const { return missing_; }
    Status take_failure() { return std::move(failure_); }
    // One of the events that the call waits for, while ranks are missing.
    PartnerWait awaited() const;
    // Describes what `peer` has not done, for error texts.
    std::string owed_by(int peer);
    // Ends a transfer that may still write into the caller's buffer. May be called again.
    void abandon();

    // ---- Requests of other ranks, served during any call of this rank. True: something moved.
    bool serve() { return rma_messages_.serve(); }
    bool networked() const { return rma_messages_.networked(); }
    bool connecting() const;
    void add_wakeups(Wakeups& wakeups) const { rma_messages_.add_wakeups(wakeups); }
    // Whether `peer` is reading or writing our memory at this moment (Signals::touched_by()).
    bool touched_by(int peer) const { return signals_.touched_by(peer); }

  private:
    void begin_message();
    Progress copy_some();
    Progress copy_by_transport();
    bool attach();
    Progress await_peer();
    Progress await_signals();
    Progress flush();
    void send_signal();
    Progress fails(Status failure);

    Segment* segment_;
    int rank_;
    Settings settings_;
    PeerAccess access_;
    Signals signals_;
    Disconnect disconnect_;
    RmaMessages rma_messages_;
    RemoteCopy remote_copy_;
    HostWindows windows_;

    OneSidedCall call_{};
    std::vector<SignalWait> waits_;  // of the call, one for each signal
    struct Target {
        AccessPath way = AccessPath::unknown;
        std::byte* base = nullptr;  // mapped: of the accessed range
    } target_;                      // what the call accesses
    uint64_t done_ = 0;             // bytes of the call that are complete
    RankSet missing_;
    Status failure_;
};

}  // namespace weft::internal
