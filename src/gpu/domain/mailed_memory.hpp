// mailed_memory.hpp: VMM memory on its way to other processes: a letter (net/descriptor_mail.hpp) has a descriptor for each
// piece, and their sizes as its text.
#pragma once
#include <span>

#include "src/drivers/cuda/vmm.hpp"
#include "src/net/descriptor_mail.hpp"

namespace weft::internal::cuda {

inline constexpr size_t mailed_pieces_max = mailed_text_max / sizeof(uint64_t);

// The letter's number. The descriptors are open until it is withdrawn.
Result<uint64_t> post_memory(DescriptorMail& mail, const Driver& driver, std::span<const VmmPiece> pieces);
// Mapped for the context's device.
Result<VmmMemory> fetch_memory(const Context& context, const MailAddress& from, uint64_t letter, int64_t deadline_us);

}  // namespace weft::internal::cuda
