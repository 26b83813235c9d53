// devices.hpp: whether this process has GPUs. NCCL's functions without a device argument use them; without GPUs this
// library serves host memory instead.
#pragma once

namespace weft::internal::nccl {

// The GPUs that the CUDA driver shows to this process. Looked up once. Thread-safe.
int device_count();

}  // namespace weft::internal::nccl
