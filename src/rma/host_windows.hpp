// host_windows.hpp: the windows of host memory on one rank: its own parts, the other ranks' parts, and how this rank
// reaches them.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "src/peer_access/peer_access.hpp"
#include "transports/user_memory.hpp"

namespace weft::internal {

// A rank's part of a window, as it is sent to the other ranks.
struct WindowPart {
    uint64_t address = 0, bytes = 0;
    uint64_t in_arena = 0;  // 1 + its offset in the arena; 0: it is not memory of weftHostAlloc
    uint64_t signals = 0;   // Signals::place()
    enum Memory : uint64_t { nothing, host, device, unfit } memory = nothing;  // unfit: it cannot be in a window
    uint64_t entry = 0, state = 0,
             offset = 0;  // device memory for other processes: cuda::BufferRegistry::RegisteredAddress
    // Device memory: where the part lies in its piece of VMM memory (cuda::SwitchedWindows); 0 bytes: in none, or several.
    uint64_t piece_bytes = 0, piece_offset = 0;
    uint64_t number = 0;  // of the window that is being deregistered
    // RegisteredMemory::key() for ranks of other hosts; no bytes: they send requests.
    static constexpr size_t key_most = 96;
    uint64_t key_bytes = 0;
    std::array<std::byte, key_most> key = {};
};

enum class AccessPath : uint8_t { unknown, mapped, kernel, transport, message };

// Another rank's part, as this rank reaches it.
struct PeerWindow {
    AccessPath way = AccessPath::unknown;
    std::byte* base = nullptr;           // mapped
    std::unique_ptr<RemoteMemory> part;  // transport, once the link exists
};

struct HostWindow {
    std::byte* address = nullptr;
    size_t bytes = 0;
    const RegisteredMemory* registered = nullptr;
    std::vector<WindowPart> parts = {};    // by rank; empty: not known yet
    std::vector<PeerWindow> reached = {};  // by rank; empty: not known yet
};

// Owned by OneSided. Thread-bound to the rank. A window has the same number on all ranks.
class HostWindows {
  public:
    HostWindows(Segment& group, int rank, PeerAccess& access, UserMemory& user_memory)
        : segment_(&group), rank_(rank), access_(&access), user_memory_(&user_memory) {}

    // Returns this rank's part, without `signals`.
    WindowPart open(uint32_t number, void* address, size_t bytes);
    void complete(uint32_t number, std::span<const WindowPart> parts);
    // `messages`: some of this rank's messages may be in progress, and use the window's memory.
    void close(uint32_t number, bool messages);

    HostWindow* find(uint32_t number) {
        const auto window = windows_.find(number);
        return window == windows_.end() ? nullptr : &window->second;
    }
    // This rank's memory; null: out of range, or there is no such window.
    std::byte* memory(uint32_t number, uint64_t offset, uint64_t bytes);
    // Finds the way at the first call.
    PeerWindow& reach(HostWindow& window, int peer);
    // Ends what the connection to the peer has attached. The connection may end afterwards.
    void forget(int peer);

  private:
    PeerWindow find_way(const WindowPart& part, int peer);

    Segment* segment_;
    int rank_;
    PeerAccess* access_;
    UserMemory* user_memory_;
    std::map<uint32_t, HostWindow> windows_;
};

}  // namespace weft::internal
