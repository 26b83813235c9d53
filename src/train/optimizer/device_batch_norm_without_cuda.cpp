// device_batch_norm_without_cuda.cpp: a build without CUDA's headers knows host memory only.
#include "src/train/optimizer/batch_norm.hpp"

namespace weft::internal::train {

namespace {
Status unavailable(int device) {
    return fail(error::gpu_unavailable, "device {} cannot be used: this build has no GPU support", device);
}
}  // namespace

Status batch_norm(const BatchNormForward&, int device, weftComm_t, weftStream_t) { return unavailable(device); }
Status batch_norm(const BatchNormBackward&, int device, weftComm_t, weftStream_t) { return unavailable(device); }

}  // namespace weft::internal::train
