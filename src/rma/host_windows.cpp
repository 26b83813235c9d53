#include "src/rma/host_windows.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "src/segment/arena.hpp"

namespace weft::internal {

WindowPart HostWindows::open(uint32_t number, void* address, size_t bytes) {
    HostWindow& window = windows_[number];
    window = {static_cast<std::byte*>(address), bytes};
    window.registered = user_memory_->add(window.address, bytes);
    WindowPart part{reinterpret_cast<uint64_t>(address), bytes, bytes > 0 ? Arena::place_of(address, bytes) : 0};
    const auto key = window.registered ? window.registered->key() : std::vector<std::byte>();
    if (key.size() > WindowPart::key_most) return part;
    part.key_bytes = key.size();
    std::copy(key.begin(), key.end(), part.key.begin());
    return part;
}

void HostWindows::complete(uint32_t number, std::span<const WindowPart> parts) {
    HostWindow& window = windows_[number];
    window.parts.assign(parts.begin(), parts.end());
    window.reached.resize(parts.size());
}

// After a failure nothing has waited for the peers' transfers, so these must fail from now on.
void HostWindows::close(uint32_t number, bool messages) {
    const auto window = windows_.find(number);
    if (window == windows_.end()) return;
    const UserMemory::Users users = segment_->aborted() ? UserMemory::Users::senders
                                    : messages          ? UserMemory::Users::calls
                                                        : UserMemory::Users::none;
    if (window->second.registered) user_memory_->remove(window->second.registered, users);
    windows_.erase(window);
}

std::byte* HostWindows::memory(uint32_t number, uint64_t offset, uint64_t bytes) {
    const HostWindow* const window = find(number);
    if (!window || offset > window->bytes || bytes > window->bytes - offset) return nullptr;
    return window->address + offset;
}

PeerWindow& HostWindows::reach(HostWindow& window, int peer) {
    PeerWindow& reached = window.reached[size_t(peer)];
    if (reached.way == AccessPath::unknown) {
        reached = find_way(window.parts[size_t(peer)], peer);
        WEFT_LOG_RANK(rank_, info, mem, "memory of rank {}'s window of {} bytes is {}", peer,
                      window.parts[size_t(peer)].bytes,
                      reached.way == AccessPath::mapped      ? "read and written in place"
                      : reached.way == AccessPath::kernel    ? "copied by the kernel"
                      : reached.way == AccessPath::transport ? "read and written by the network"
                                                             : "asked of that rank");
    }
    return reached;
}

void HostWindows::forget(int peer) {
    for (auto& [number, window] : windows_)
        if (!window.reached.empty()) window.reached[size_t(peer)] = {};
}

// A local decision: other ranks do not need to know how this rank reaches their memory.
PeerWindow HostWindows::find_way(const WindowPart& part, int peer) {
    if (!segment_->local(peer)) {
        const Transport* const transport = user_memory_->transport();
        const bool by_transport = part.key_bytes > 0 && transport && transport->can(Capability::one_sided);
        return {by_transport ? AccessPath::transport : AccessPath::message, nullptr, nullptr};
    }
    if (segment_->same_process(rank_, peer))
        return {AccessPath::mapped, reinterpret_cast<std::byte*>(part.address), nullptr};
    std::byte* arena = part.in_arena != 0 ? access_->arena(peer) : nullptr;
    if (arena) return {AccessPath::mapped, arena + (part.in_arena - 1), nullptr};
    return {access_->cma_works(peer) ? AccessPath::kernel : AccessPath::message, nullptr, nullptr};
}

}  // namespace weft::internal
