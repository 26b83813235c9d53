#include "src/gpu/engine/device_windows.hpp"

namespace weft::internal {

using cuda::BufferRegistry;

Status DeviceWindows::open(uint32_t number, void* address, size_t bytes, WindowPart& part) {
    DeviceWindow window;
    if (!one_process(*segment_)) {
        auto entry = registry_->add(address, bytes, BufferRegistry::RegistrationUse::window);
        if (!entry) return entry.take_status();
        window.entry = *entry;
        const BufferRegistry::RegisteredAddress place = registry_->registered_address(*entry, address);
        part.entry = uint64_t(place.entry);
        part.state = place.state;
        part.offset = place.offset;
    }
    windows_[number] = std::move(window);
    return ok();
}

Result<bool> DeviceWindows::reach(uint32_t number, std::span<const WindowPart> parts) {
    DeviceWindow& window = windows_[number];
    window.at.assign(parts.size(), nullptr);
    window.bytes.assign(parts.size(), 0);
    registry_->look();
    window.unreached.clear();
    for (size_t peer = 0; peer < parts.size(); ++peer) {
        const WindowPart& part = parts[peer];
        window.bytes[peer] = part.bytes;
        if (part.bytes == 0) continue;
        if (segment_->same_process(rank_, int(peer))) {
            window.at[peer] = reinterpret_cast<std::byte*>(part.address);
            continue;
        }
        const auto there = registry_->reach(int(peer), {int32_t(part.entry), part.state, part.offset});
        if (!there) window.unreached.push_back(int(peer));
        if (!there) continue;
        if (!*there)
            return fail(error::window_unreachable,
                        "rank {} cannot map rank {}'s part of the window: its log at INFO has the reason", rank_, peer)
                .about({.rank = rank_, .peer = int(peer)});
        window.at[peer] = *there;
    }
    return window.unreached.empty();
}

std::vector<int> DeviceWindows::missing(uint32_t number) const {
    const auto window = windows_.find(number);
    if (window == windows_.end()) return {};
    return !window->second.unreached.empty() ? window->second.unreached
           : window->second.entry            ? registry_->unanswered(*window->second.entry)
                                             : std::vector<int>();
}

void DeviceWindows::begin_to_close(uint32_t number) {
    const auto window = windows_.find(number);
    if (window == windows_.end()) return;
    window->second.unreached.clear();
    if (window->second.entry)
        registry_->begin_to_remove(*window->second.entry, BufferRegistry::RegistrationUse::window);
    else
        windows_.erase(window);
}

bool DeviceWindows::closed(uint32_t number) {
    const auto window = windows_.find(number);
    if (window == windows_.end()) return true;
    registry_->look();
    if (window->second.entry && !registry_->removed(*window->second.entry)) return false;
    windows_.erase(window);
    return true;
}

}  // namespace weft::internal
