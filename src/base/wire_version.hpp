// wire_version.hpp: whether two processes use the same layout of shared data and messages, and the error if they do
// not.
#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "weft/types.h"

namespace weft::internal {

// The revision among builds of one version. Raise it with every change of data that one process writes for another, in
// a segment or on a socket. That is: DeviceFacts, AgreedOptions, a row of Segment, the rank table, check-in, agreed texts,
// message headers, the contents of flag lines and slots, and zero-copy messages. The handshake stays the same in all
// revisions.
inline constexpr uint32_t wire_revision = 23;

// The form in handshakes and segments: the version, and in the bits above it the revision.
inline constexpr int wire_version_bits = 20;
inline constexpr uint32_t wire_version = wire_revision << wire_version_bits | WEFT_VERSION_CODE;
static_assert(WEFT_VERSION_CODE < 1u << wire_version_bits && wire_revision < 1u << (32 - wire_version_bits));

// The remedy if two differ. `here` and `there` name the process with each, as in "process 7 has".
inline std::string wire_mismatch(const std::string& here, uint32_t own, const std::string& there, uint32_t other) {
    constexpr uint32_t mask = (1u << wire_version_bits) - 1;
    if ((own & mask) != (other & mask))
        return fmt::format("{} version {} of the Weft library and {} version {}: all ranks need the same", here,
                           own & mask, there, other & mask);
    return fmt::format(
        "{} one build of version {} of the Weft library and {} another, which lays out its messages differently "
        "(revisions {} and {}): all ranks need the same",
        here, own & mask, there, own >> wire_version_bits, other >> wire_version_bits);
}

}  // namespace weft::internal
