// passed_memory.hpp: passes VMM memory to other processes: a set (net/fd_passing.hpp) has a descriptor for each piece,
// and the sizes of the pieces as its text.
#pragma once
#include <span>

#include "src/drivers/cuda/vmm.hpp"
#include "src/net/fd_passing.hpp"

namespace weft::internal::cuda {

inline constexpr size_t passed_pieces_max = passed_text_max / sizeof(uint64_t);

// The id of the set. Its descriptors stay open until it is withdrawn.
Result<uint64_t> post_memory(FdServer& fd_server, const Driver& driver, std::span<const VmmPiece> pieces);
// The memory is mapped for the context's device.
Result<VmmMemory> fetch_memory(const Context& context, const FdServerAddress& from, uint64_t fds_id,
                               int64_t deadline_us);

}  // namespace weft::internal::cuda
