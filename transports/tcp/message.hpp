// message.hpp: what both ends of a TCP connection lay out alike: the header before each message, the shares of a
// message that goes over several sockets, the address a receiver gives.
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
// From this size on a message is shared out over all stripes; below, one more packet costs more than half the bytes
// save.
inline constexpr uint64_t striped_bytes = 65536;

// Bytes [begin, end) of a message travel over this stripe. An empty share of a stripe but the first has no header.
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

// Where and how a receiver listens; travels in a Blob.
struct ListenAddress {
    uint64_t token = 0;  // make_token()
    int depth = 0;
    int stripes = 1;  // sockets that the receiver would take
    size_t slot_bytes = 0;
    std::vector<net::Address> addresses;

    // By which the receiver's process knows the connection: no two of its own are equal. The upper half is its
    // net::process_mark().
    static uint64_t make_token();
    net::TargetProcess target() const { return {.process = uint32_t(token >> 32)}; }

    Blob blob() const;  // with as many of the addresses as fit, the best first
    static std::optional<ListenAddress> of(const Blob& blob);
};

// What a caller says a data connection is for, besides the token: purpose.detail.
inline uint32_t stripe_detail(int stripe, int stripes) { return uint32_t(stripe) | uint32_t(stripes) << 16; }
inline int stripe_of(uint32_t detail) { return int(detail & 0xffff); }
inline int stripes_of(uint32_t detail) { return int(detail >> 16); }

}  // namespace weft::internal::tcp
