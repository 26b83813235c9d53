// limits.hpp: the sizes for which ranks access each other's memory in place, and whether messages use cross-memory
// attach (CMA). Measured: perf/results/2026-11-27-special-cases.md.
#pragma once
#include <cstddef>

namespace weft::internal::peer_limits {

// Zero-copy messages. Below, two copies through a slot cost less than the exchange of addresses.
inline constexpr size_t zero_copy_least = 16 << 10;
// Zero-copy messages by CMA. Above, two cores that copy through slots in their caches are faster than one core in the
// kernel, which looks up every page.
inline constexpr size_t cma_message_most = 2 << 20;
// One-shot: below, the exchange of addresses needs a second wait, which costs more than it saves.
inline constexpr size_t exported_least = 8 << 10;
// Two-shot by CMA: outside this range, and with more ranks, staging is faster.
inline constexpr size_t cma_two_shot_least = 64 << 10, cma_two_shot_most = 8 << 20;
inline constexpr int cma_two_shot_ranks_most = 2;

}  // namespace weft::internal::peer_limits

namespace weft::internal {

// Whether messages between processes use CMA: as `asked` by WEFT_CROSS_MEMORY. If that is negative, they do unless two
// cores pass data through slots faster, which depends on the processor.
bool cma_messages_wanted(int asked);

}  // namespace weft::internal
