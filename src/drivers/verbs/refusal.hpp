// refusal.hpp: the sentence about a request that a device, or the kernel, refuses.
#pragma once
#include <cstddef>
#include <string>

#include "src/base/result.hpp"
#include "src/drivers/verbs/context.hpp"

namespace weft::internal::verbs {

// `what` continues "mlx5_0 refuses". ENOMEM: verbs.memlock, with the bytes to pin, the limit, and the remedy.
Status refused(const Context& context, const std::string& what, size_t pinned_bytes, int error);

}  // namespace weft::internal::verbs
