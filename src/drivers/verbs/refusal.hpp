// refusal.hpp: the sentence about a request that a device, or the kernel, refuses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "src/base/result.hpp"
#include "src/drivers/verbs/context.hpp"

namespace weft::internal::verbs {

// `what` continues "mlx5_0 refuses". ENOMEM of a process with a limit: verbs.memlock, with the bytes to pin, the limit, and
// the remedy. Otherwise verbs.call.
Status refused(const Context& context, const std::string& what, size_t pinned_bytes, int error);
// Empty: this process may pin so many bytes. Otherwise a sentence with the limit and the remedy.
std::string memlock_note(uint64_t least_bytes);

}  // namespace weft::internal::verbs
