#include "src/nccl/devices.hpp"

#include "src/drivers/inventory.hpp"

namespace weft::internal::nccl {

int device_count() {
    static const int count = int(describe_drivers().gpus.size());
    return count;
}

}  // namespace weft::internal::nccl
