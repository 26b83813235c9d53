#include "transports/user_memory.hpp"

#include <algorithm>

#include "src/base/log.hpp"

namespace weft::internal {

const RegisteredMemory* UserMemory::add(std::byte* data, size_t bytes) {
    if (!transport_ || bytes == 0) return nullptr;
    auto made = transport_->register_memory({.data = data, .bytes = bytes, .kind = RangeKind::user});
    if (!made) {
        WEFT_LOG_RANK(rank_, info, mem, "{} bytes at {} are not registered with {}, so messages are copied: {}", bytes,
                      static_cast<const void*>(data), transport_->name, made.status().sentence());
        return nullptr;
    }
    return ranges_.emplace(data, std::move(*made))->second.get();
}

void UserMemory::remove(const RegisteredMemory* memory, Users users) {
    const auto place =
        std::find_if(ranges_.begin(), ranges_.end(), [&](const auto& range) { return range.second.get() == memory; });
    if (place == ranges_.end()) return;
    std::unique_ptr<RegisteredMemory> ended = std::move(place->second);
    ranges_.erase(place);
    if (users == Users::none) return;
    if (users == Users::senders) ended->revoke();
    ended_.push_back(std::move(ended));
}

}  // namespace weft::internal
