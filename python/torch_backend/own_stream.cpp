#include "own_stream.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

namespace weft_torch {

namespace {

struct Owners {
    std::mutex mutex;
    std::map<std::pair<c10::DeviceIndex, c10::StreamId>, int> of;
};
Owners& owners() {
    static auto* const all = new Owners;  // threads may outlive static objects
    return *all;
}

// More than any pool has.
constexpr int most_draws = 64;

c10::Stream draw(const c10::Device& device, bool high_priority) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    std::lock_guard lock(owners().mutex);
    c10::Stream best = guard.getStreamFromGlobalPool(device, high_priority);
    const auto count = [](const c10::Stream& stream) -> int& {
        return owners().of[{stream.device_index(), stream.id()}];
    };
    for (int draws = 1; draws < most_draws && count(best) > 0; ++draws) {
        const c10::Stream other = guard.getStreamFromGlobalPool(device, high_priority);
        if (count(other) < count(best)) best = other;
    }
    ++count(best);
    return best;
}

}  // namespace

OwnStream::OwnStream(const c10::Device& device, bool high_priority) : stream_(draw(device, high_priority)) {}

OwnStream::~OwnStream() {
    std::lock_guard lock(owners().mutex);
    --owners().of[{stream_.device_index(), stream_.id()}];
}

}  // namespace weft_torch
