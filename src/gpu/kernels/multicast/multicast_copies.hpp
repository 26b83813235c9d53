// multicast_copies.hpp: the form of a multicast mapping on the host, which has no switch. Each 2 MiB of the mapping begin
// with a directory of the copies of these 2 MiB. Multimem operations of the kernels' host form (multimem.hpp) go through
// it. The fake driver of the tests makes it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/gpu/kernels/kernel_arguments.hpp"

namespace weft::internal::cuda {

inline constexpr size_t multicast_granule = size_t(2) << 20;
struct MulticastCopies {
    int32_t count;
    std::byte* at[ranks_max];  // in the order in which the copies are added up
};

}  // namespace weft::internal::cuda
