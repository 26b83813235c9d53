// one_sided.hpp: one-sided calls: put, get, signal and waiting for signals (docs/design/rma.md). Windows on this host are
// accessed in place or by CMA. For other windows the rank sends a request to the owner.
#pragma once
#include <map>
#include <optional>
#include <span>

#include "src/base/shared_memory.hpp"
#include "src/peer_access/peer_access.hpp"
#include "src/rma/one_sided_call.hpp"
#include "src/rma/remote_copy.hpp"
#include "src/rma/rma_messages.hpp"
#include "src/rma/signals.hpp"

namespace weft::internal {

// A rank's part of a window, as it is sent to the other ranks.
struct WindowPart {
    uint64_t address = 0, bytes = 0;
    uint64_t in_arena = 0;  // 1 + its offset in the arena; 0: it is not memory of weftHostAlloc
    uint64_t signals = 0;   // Signals::place()
    enum Memory : uint64_t { nothing, host, device, unfit } memory = nothing;  // unfit: it cannot be in a window
    uint64_t entry = 0, state = 0,
             offset = 0;  // device memory for other processes: cuda::BufferRegistry::RegisteredAddress
    uint64_t number = 0;  // of the window that is being deregistered
    // RegisteredMemory::key() for ranks of other hosts; no bytes: they send requests.
    static constexpr size_t key_most = 96;
    uint64_t key_bytes = 0;
    std::array<std::byte, key_most> key = {};
};

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
    // `messages`: some of this rank's messages may be in progress, and use the window's memory.
    void close(uint32_t number, bool messages);

    // ---- A call. If begin() fails, nothing has changed.
    Status begin(const OneSidedCall& call);
    Progress advance();  // moved, blocked, done or failed
    const RankSet& missing() const { return missing_; }
    Status take_failure() { return std::move(failure_); }
    // One of the events that the call waits for, while ranks are missing.
    PartnerWait awaited() const;
    // Describes what `peer` has not done, for error texts.
    std::string owed_by(int peer);
    void abandon();

    // ---- Requests of other ranks, served during any call of this rank. True: something moved.
    bool serve() { return rma_messages_.serve(); }
    bool networked() const { return rma_messages_.networked(); }
    bool connecting() const;
    void add_wakeups(Wakeups& wakeups) const { rma_messages_.add_wakeups(wakeups); }
    // Whether `peer` is reading or writing our memory at this moment (Signals::touched_by()).
    bool touched_by(int peer) const { return signals_.touched_by(peer); }

  private:
    enum class AccessPath : uint8_t { unknown, mapped, kernel, transport, message };
    struct PeerWindow {
        AccessPath way = AccessPath::unknown;
        std::byte* base = nullptr;           // mapped
        std::unique_ptr<RemoteMemory> part;  // transport, once the link exists
    };
    struct Window {
        std::byte* address = nullptr;
        size_t bytes = 0;
        const RegisteredMemory* registered = nullptr;
        std::vector<WindowPart> parts = {};    // by rank; empty: not known yet
        std::vector<PeerWindow> reached = {};  // by rank; empty: not known yet
    };
    std::byte* memory(uint32_t window, uint64_t offset, uint64_t bytes);
    PeerWindow& reach(Window& window, int peer);
    PeerWindow find_way(const WindowPart& part, int peer);
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
    std::map<int, RemoteCopy::Peer> remote_peers_;
    std::map<uint32_t, Window> windows_;

    OneSidedCall call_{};
    std::vector<SignalWait> waits_;         // of the call, one for each signal
    AccessPath way_ = AccessPath::unknown;  // to the window that the call accesses
    std::byte* base_ = nullptr;             // of the accessed range, if it is mapped
    uint64_t done_ = 0;                     // bytes of the call that are complete
    RankSet missing_;
    Status failure_;
};

}  // namespace weft::internal
