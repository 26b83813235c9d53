// fused_rows.hpp: which fused kernel serves a call on device memory, by the shape of its collective and its size: one row
// for each kernel and shape. Step algorithms are chosen by their predicted times instead. Reentrant.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/operation.hpp"

namespace weft::internal {

enum class FusedKernel : uint8_t { packet_one_shot, packet_two_shot, peer_one_shot, peer_two_shot };

// The fused techniques that ranks can use, and that WEFT_ALGO allows.
struct FusedTechniques {
    bool one_shot = false, two_shot = false;
    size_t packet_bytes = 0;  // the longest all-reduce of floating-point numbers by two-shot packets
};

// The longest all-reduce by two-shot packets that carry epochs, or that pass through host memory.
inline constexpr size_t epoch_packet_bytes = 512 << 10;

struct FusedRow {
    bool one_shot;       // the technique of all-reduces and collectives with parts; others may use either
    FusedKernel kernel;  // the fastest up to the limit
    // Of the bytes that pass a rank's links (fused_bytes()): for two ranks, and for more.
    size_t most_bytes_of_two, most_bytes;
};

// From when on the switch serves all-reduces: the least ranks and bytes. Published for staged messages on H100: two-shot
// kernels are as fast with up to four ranks, and up to 1 MiB. Of other collectives links carry as much without the
// switch, and staging costs more. Weft has not measured any of it.
struct MulticastLimits {
    int ranks;
    size_t bytes;
};
inline constexpr MulticastLimits multicast_limits{6, 1 << 20};
bool multicast_pays(const Operation& operation);

// The rows of a collective, for shorter messages first.
std::span<const FusedRow> fused_rows(Collective collective);
// The bytes by which a row is chosen: of an all-reduce the message, of other collectives what passes a rank's links.
size_t fused_bytes(const Operation& operation, int ranks);
// The limit of a row. Above 16 ranks that of a one-shot all-reduce falls, because it sends the message to every rank.
// Two-shot packets of floating-point numbers carry data only (cuda::FullLines) and need no barriers. They are predicted to
// win over staged messages, so of 2 to 16 ranks their limit is a setting.
size_t most_bytes_of(const FusedRow& row, const Operation& operation, int ranks, size_t packet_bytes);
// The row of a call. Null: none, so step algorithms serve. steps: whether step algorithms could.
const FusedRow* choose_fused(const Operation& operation, int ranks, FusedTechniques techniques, bool steps);

}  // namespace weft::internal
