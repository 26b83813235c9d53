#include "transports/tcp/message.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace weft::internal::tcp {

namespace {

constexpr size_t address_words = 3;  // words before the addresses
constexpr size_t address_bytes = (Blob::of_transport - address_words) * sizeof(uint64_t);

}  // namespace

uint64_t ListenAddress::make_token() {
    static std::atomic<uint32_t> made{0};
    return uint64_t(net::process_mark()) << 32 | made.fetch_add(1, std::memory_order_relaxed);
}

Blob ListenAddress::blob() const {
    Blob blob;
    std::vector<std::byte> packed;
    size_t count = 0;
    for (const net::Address& address : addresses) {
        if (packed.size() + address.packed_bytes() > address_bytes) break;
        address.pack(packed);
        ++count;
    }
    // Only stripes whose address fits: seven IPv6 addresses fit.
    const auto end = addresses.begin() + ptrdiff_t(count);
    int served = 0;
    while (served < stripes && std::any_of(addresses.begin(), end,
                                           [&](const net::Address& address) { return address.interface() == served; }))
        ++served;
    blob.words[0] = token;
    blob.words[1] = uint64_t(uint32_t(depth)) | uint64_t(std::max(1, served)) << 32 | uint64_t(count) << 48;
    blob.words[2] = slot_bytes;
    memcpy(blob.words + address_words, packed.data(), packed.size());
    return blob;
}

std::optional<ListenAddress> ListenAddress::of(const Blob& blob) {
    ListenAddress listen_address;
    listen_address.token = blob.words[0];
    listen_address.depth = int(uint32_t(blob.words[1]));
    listen_address.stripes = int(blob.words[1] >> 32 & 0xffff);
    listen_address.slot_bytes = blob.words[2];
    const auto* at = reinterpret_cast<const std::byte*>(blob.words + address_words);
    for (uint64_t left = blob.words[1] >> 48; left > 0; --left) {
        const auto address = net::Address::unpack(at, reinterpret_cast<const std::byte*>(&blob + 1));
        if (!address) return {};
        listen_address.addresses.push_back(*address);
    }
    if (listen_address.depth < 1 || listen_address.stripes < 1 || listen_address.stripes > stripes_max ||
        listen_address.addresses.empty())
        return {};
    return listen_address;
}

}  // namespace weft::internal::tcp
