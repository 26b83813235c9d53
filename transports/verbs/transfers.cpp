#include "transports/verbs/transfers.hpp"

#include <algorithm>

#include "src/net/bytes.hpp"

namespace weft::internal::verbs {

Result<std::unique_ptr<RemoteRange>> RemoteRange::of(std::span<const std::byte> key, uint32_t process) {
    ByteReader from(key.data(), key.size());
    auto range = std::make_unique<RemoteRange>();
    const auto magic = from.get<uint32_t>(), owner = from.get<uint32_t>();
    range->address_ = from.get<uint64_t>();
    range->bytes_ = from.get<uint64_t>();
    const auto devices = from.get<uint32_t>();
    for (uint32_t i = 0; i < devices && from.ok(); ++i) range->keys_.push_back(from.get<uint32_t>());
    if (!from.at_end() || magic != Registered::key_magic || devices == 0)
        return fail(error::internal_state, "a key of {} bytes is none of registered memory over verbs", key.size());
    if (owner != process)
        return fail(error::internal_state, "a key of registered memory belongs to another process than the connection");
    return range;
}

uint64_t Transfers::add(bool puts, int parts, bool scattered) {
    const uint64_t number = posted_++;
    parts_left_[size_t(number % most)] = parts;
    if (puts) puts_end_ = posted_;
    if (puts && scattered) scattered_end_ = posted_;
    return number;
}

void Transfers::complete(uint64_t number, int parts) {
    parts_left_[size_t(number % most)] -= parts;
    while (ended_ < posted_ && parts_left_[size_t(ended_ % most)] == 0) ++ended_;
}

void Transfers::begin_confirming(int reads) {
    confirming_ = posted_;
    lanes_ = 0;
    confirming_left_ = reads;
}

bool Transfers::complete_confirmation(bool works, int reads) {
    confirming_left_ -= reads;
    if (confirming_left_ > 0) return false;
    if (works) confirmed_ = std::max(confirmed_, confirming_);
    return true;
}

bool Transfers::settle() {
    if (!unconfirmed()) confirmed_ = ended_;
    return confirmed_ >= ended_;
}

}  // namespace weft::internal::verbs
