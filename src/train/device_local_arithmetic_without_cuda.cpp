// device_local_arithmetic_without_cuda.cpp: a build without CUDA's headers knows host memory only.
#include "src/train/local_arithmetic.hpp"

namespace weft::internal::train {

Status run_local_kernel(int device, const cuda::LocalArguments&, weftStream_t) {
    return fail(error::gpu_unavailable, "device {} cannot be used: this build has no GPU support", device);
}

}  // namespace weft::internal::train
