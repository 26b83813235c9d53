// message.hpp: the wire format of a TCP connection: the header before each message, the shares of a message that is sent
// over several sockets, and the receiver's address.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/net/address.hpp"
#include "src/net/handshake.hpp"
#include "transports/transport.hpp"

namespace weft::internal::tcp {

struct MessageHeader {
    static constexpr uint32_t expected_magic = 0x676d6677;  // "wfmg"
    uint32_t magic = expected_magic;
    uint32_t fingerprint = 0;
    uint64_t sequence = 0;  // of the message on this connection, from 1
    uint64_t bytes = 0;     // of the whole message, on every stripe
    uint64_t operation = 0;
};
static_assert(sizeof(MessageHeader) == 32);

inline constexpr int stripes_max = 8;
// Messages of at least this size are split over all stripes. Below, one more packet costs more than a split saves.
inline constexpr uint64_t striped_bytes = 65536;

// Bytes [begin, end) of a message are sent over this stripe. Only the first stripe sends a header for an empty share.
struct Share {
    uint64_t begin;
    uint64_t end;
};
inline Share share_of(uint64_t bytes, int stripe, int stripes) {
    if (stripes == 1 || bytes < striped_bytes) return stripe == 0 ? Share{0, bytes} : Share{bytes, bytes};
    const uint64_t part = (bytes / uint64_t(stripes) + 63) / 64 * 64;
    return {std::min(bytes, part * uint64_t(stripe)),
            stripe == stripes - 1 ? bytes : std::min(bytes, part * uint64_t(stripe + 1))};
}
inline bool has_part(uint64_t bytes, int stripe, int stripes) {
    const Share share = share_of(bytes, stripe, stripes);
    return stripe == 0 || share.begin < share.end;
}

// A receiver's address, as it travels in a Blob.
struct ListenAddress {
    uint64_t token = 0;  // make_token()
    int depth = 0;
    int stripes = 1;  // sockets that the receiver accepts
    size_t slot_bytes = 0;
    std::vector<net::Address> addresses;

    // Identifies the connection in the receiver's process. The upper half is its net::process_mark().
    static uint64_t make_token();
    net::TargetProcess target() const { return {.process = uint32_t(token >> 32)}; }

    Blob blob() const;  // with as many of the addresses as fit, best first
    static std::optional<ListenAddress> of(const Blob& blob);
};

// net::Purpose::detail of a data connection.
inline uint32_t stripe_detail(int stripe, int stripes) { return uint32_t(stripe) | uint32_t(stripes) << 16; }
inline int stripe_of(uint32_t detail) { return int(detail & 0xffff); }
inline int stripes_of(uint32_t detail) { return int(detail >> 16); }

}  // namespace weft::internal::tcp
