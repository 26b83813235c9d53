// kernel_end.hpp: how the host learns that a kernel has ended, without an event behind it: each block writes the number
// of its launch into pinned memory. The launches that report are numbered in the order in which they run. Fused bodies
// report in KernelBarrier::leave(), and so only if they have not failed.
#pragma once
#include "src/gpu/kernels/device.hpp"

namespace weft::internal::cuda {

// The whole team calls it last. `arguments`: of any kernel with `ended` and `launch`.
template <class Arguments>
WEFT_DEVICE void report_end(const Team& team, const Arguments& arguments) {
    if (!arguments.ended) return;
    team.barrier();  // the accesses of the other threads come before the report
    if (team.thread == 0) store_release(&arguments.ended[team.block], arguments.launch);  // pairs with has_ended()
}

#if !defined(__CUDACC__)
// A launch that reports its end, in one word for atomics: launch << 32 | blocks. 0: there was none.
constexpr uint64_t reporting_launch(uint32_t launch, uint32_t blocks) { return uint64_t(launch) << 32 | blocks; }
// Whether it has ended, or a later one has.
inline bool has_ended(const uint32_t* ended, uint64_t reporting) {
    for (uint32_t block = 0; block < uint32_t(reporting); ++block)
        if (int32_t(load_acquire(&ended[block]) - uint32_t(reporting >> 32)) < 0) return false;
    return true;
}
#endif

}  // namespace weft::internal::cuda
