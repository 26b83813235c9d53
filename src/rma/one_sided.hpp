// one_sided.hpp: what a rank does with memory of others without their help: puts, gets, signals, and waiting for
// signals (docs/design/rma.md). Memory of this host is read and written in place or by the kernel; what cannot be
// reached so is asked of its owner. One call at a time, begun, advanced until it is done; nothing blocks. Thread-bound
// to the rank.
#pragma once
#include <map>
#include <optional>
#include <span>

#include "src/base/shared_memory.hpp"
#include "src/peer_access/peer_arenas.hpp"
#include "src/rma/rma_messages.hpp"
#include "src/rma/signals.hpp"

namespace weft::internal {

// What each rank tells the others of its part of a window.
struct WindowPart {
    uint64_t address = 0, bytes = 0;
    uint64_t in_arena = 0;  // one more than its offset there; 0: it is not in weftHostAlloc's memory
    uint64_t signals = 0;   // Signals::place()
    enum Memory : uint64_t { nothing, host, device, unfit } memory = nothing;  // unfit: it cannot be in a window
    uint64_t entry = 0, state = 0,
             offset = 0;  // device memory for other processes: cuda::BufferRegistry::RegisteredAddress
    uint64_t number = 0;  // of the window that is to end
};

struct SignalWait {
    int peer;
    int signal;  // Signals::number_of()
    uint64_t count;
};

struct OneSidedCall {
    enum class RmaOp : uint8_t { put, get, signal, wait, flush };
    RmaOp kind;
    int peer = 0;
    uint32_t window = 0;
    uint64_t offset = 0, bytes = 0;
    std::byte* data = nullptr;
    int signal = RmaMessages::no_signal;
    std::span<const SignalWait> waits = {};
};
// Whether what a put or get names is inside the peer's part, which has so many bytes.
Status check_inside(const OneSidedCall& call, uint64_t part_bytes);
// Whether what it names there, at an address of this process, and the data here are the same or have nothing in common.
Status check_overlap(const OneSidedCall& call, const std::byte* there);
// Each signal once, with all that is waited for of it.
void merge_waits(std::span<const SignalWait> waits, std::vector<SignalWait>& into);

class OneSided {
  public:
    struct Settings {
        bool direct;  // memory of weftHostAlloc may be mapped
        bool cma;     // the kernel may copy between processes
        const CpuKernels* cpu_kernels;
    };
    using Connect = std::function<Status(int peer, PeerLink& link)>;
    using CalledBy = std::function<bool(int peer)>;
    OneSided(Segment& group, int rank, const Settings& settings, Connect connect, CalledBy called_by);

    // ---- Windows, which have the same number on all ranks. Open from here on for others' requests; the others' parts
    // are known when they have told them.
    Result<WindowPart> open(uint32_t number, void* address, size_t bytes, size_t& heap_used);
    void complete(uint32_t number, std::span<const WindowPart> parts);
    void close(uint32_t number) { windows_.erase(number); }

    // ---- A call. A failure of begin() leaves everything as it was.
    Status begin(const OneSidedCall& call);
    Progress advance();  // moved, blocked, done or failed
    const RankSet& missing() const { return missing_; }
    Status take_failure() { return std::move(failure_); }
    // What it waits for, one thing of all. While some are missing.
    PartnerWait awaited() const;
    // What is missing from `peer`, for people.
    std::string owed_by(int peer);
    void abandon();

    // ---- Others' requests, whatever this rank is in. True: something moved.
    bool serve() { return rma_messages_.serve(); }
    bool networked() const { return rma_messages_.networked(); }
    bool connecting() const;
    void add_descriptors(std::vector<pollfd>& list) const { rma_messages_.add_descriptors(list); }
    // Whether `peer` reads or writes our memory right now, itself (Signals::touched_by()).
    bool touched_by(int peer) const { return signals_.touched_by(peer); }

  private:
    enum class AccessPath : uint8_t { unknown, mapped, kernel, message };
    struct PeerWindow {
        AccessPath way = AccessPath::unknown;
        std::byte* base = nullptr;  // mapped
    };
    struct Window {
        std::byte* address = nullptr;
        size_t bytes = 0;
        std::vector<WindowPart> parts = {};    // by rank; empty: not known yet
        std::vector<PeerWindow> reached = {};  // likewise
    };
    std::byte* memory(uint32_t window, uint64_t offset, uint64_t bytes);
    const PeerWindow& reach(Window& window, int peer);
    PeerWindow find_way(const WindowPart& part, int peer);
    bool uses_cma(int peer);
    Progress copy_some();
    Progress await_peer();
    Progress await_signals();
    Progress flush();
    void send_signal();
    Progress fails(Status failure);

    Segment* segment_;
    int rank_;
    Settings settings_;
    Cma cma_;
    Signals signals_;
    RmaMessages rma_messages_;
    std::map<uint32_t, Window> windows_;
    PeerArenas arenas_;
    std::map<int, bool> uses_cma_;  // by rank, once tried

    OneSidedCall call_{};
    std::vector<SignalWait> waits_;  // of the call, one for each signal
    PeerWindow reached_;             // what it is done to
    uint64_t done_ = 0;              // bytes of it
    RankSet missing_;
    Status failure_;
};

}  // namespace weft::internal
