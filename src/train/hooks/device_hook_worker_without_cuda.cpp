// device_hook_worker_without_cuda.cpp: a build without CUDA's headers knows host memory only.
#include "src/train/hooks/hook_worker.hpp"

namespace weft::internal::train {

Result<std::unique_ptr<HookWorker>> device_hook_worker(int device) {
    return fail(error::gpu_unavailable, "device {} cannot be used: this build has no GPU support", device);
}

}  // namespace weft::internal::train
