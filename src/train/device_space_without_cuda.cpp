// device_space_without_cuda.cpp: a build without CUDA's headers knows host memory only.
#include "src/train/memory_space.hpp"

namespace weft::internal::train {

Result<std::unique_ptr<MemorySpace>> device_space(int device) {
    return fail(error::gpu_unavailable, "device {} cannot be used: this build has no GPU support", device);
}

Result<std::shared_ptr<void>> pin_for(int device, void*, size_t) { return device_space(device).take_status(); }

Status check_device_stream(const char*, int device, weftStream_t) { return device_space(device).take_status(); }

DeviceFinder device_finder() {
    return [](const void*) { return Result<int>(-1); };
}

}  // namespace weft::internal::train
