#include "src/executor/cuda/kernels.hpp"

#include <fmt/core.h>

namespace weft::cuda {

const char* name_of(Kernel kernel) {
    static constexpr const char* names[] = {
#define WEFT_KERNEL(name, needs, help) #name,
#include "src/executor/cuda/kernel.def"
#undef WEFT_KERNEL
    };
    return names[int(kernel)];
}

std::string entry_point(Kernel kernel, weftDataType_t type, bool adds) {
    return fmt::format("weft_{}_{}_{}", name_of(kernel), weft::name_of(type), adds ? "sum" : "other");
}

}  // namespace weft::cuda
