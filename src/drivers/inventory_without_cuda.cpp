// inventory_without_cuda.cpp: the inventory in a build without the CUDA driver's headers: it is empty.
#include "src/drivers/inventory.hpp"

namespace weft::internal {

DriverInventory describe_drivers() {
    DriverInventory all;
    all.cuda_why_not = all.nvml_why_not =
        "this build of Weft has no GPU support: no CUDA toolkit was found when it was built, or -Dcuda=disabled";
    return all;
}

}  // namespace weft::internal
