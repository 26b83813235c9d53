// device_local_arithmetic.cpp: the loops of local training on a device (local_arithmetic.hpp).
#include <algorithm>

#include "src/gpu/domain/training_kernel.hpp"
#include "src/gpu/kernels/device_code.hpp"
#include "src/gpu/kernels/training/local_arguments.hpp"
#include "src/train/local_arithmetic.hpp"

namespace weft::internal::train {

Status run_local_kernel(int device, const cuda::LocalArguments& work, weftStream_t stream) {
    auto driver = cuda::Driver::get();
    if (!driver) return driver.take_status();
    auto context = cuda::Context::retain(**driver, device);
    if (!context) return context.take_status();
    auto kernel = cuda::training_kernel(*context, cuda::optimizer_code(), cuda::local_entry_point);
    if (!kernel) return kernel.take_status();
    if (work.count == 0) return ok();
    const uint64_t blocks = (work.count + cuda::local_threads - 1) / cuda::local_threads;
    const cuda::ContextScope scope(*context);
    cuda::LocalArguments arguments = work;
    void* parameters[] = {&arguments};
    return kernel->launch({.blocks = unsigned(std::min<uint64_t>(blocks, cuda::local_blocks_max)),
                           .threads = unsigned(cuda::local_threads)},
                          static_cast<CUstream>(stream), parameters);
}

}  // namespace weft::internal::train
