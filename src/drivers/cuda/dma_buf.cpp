#include "src/drivers/cuda/dma_buf.hpp"

#include "src/base/shared_memory.hpp"

namespace weft::internal::cuda {

namespace {

// CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE, which headers before 12.8 lack.
constexpr unsigned long long mapping_over_pcie = 1;
constexpr int version_with_mappings = 12080;

}  // namespace

Result<DmaBuf> export_dma_buf(const Context& context, CUdeviceptr address, size_t bytes, bool pcie) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    WEFT_TRY(driver.need(driver.MemGetHandleForAddressRange != nullptr, "cuMemGetHandleForAddressRange"));
    int supported = 0;
    if (driver.DeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, context.device()) !=
            CUDA_SUCCESS ||
        supported == 0)
        return fail(error::cuda_driver,
                    "the CUDA driver exports no dma-buf of device {}'s memory: NVIDIA's open kernel modules and Linux "
                    "5.12 do",
                    context.device());
    const size_t page = page_bytes();
    const CUdeviceptr begin = address / page * page, end = (address + bytes + page - 1) / page * page;
    int number = -1;
    const auto get = [&](unsigned long long flags) {
        return driver.MemGetHandleForAddressRange(&number, begin, size_t(end - begin),
                                                  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags);
    };
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (pcie && driver.version() >= version_with_mappings) result = get(mapping_over_pcie);
    if (result != CUDA_SUCCESS) result = get(0);
    WEFT_TRY(driver.check(result, "export {} bytes of device {}'s memory at {:#x} as a dma-buf", end - begin,
                          context.device(), begin));
    return DmaBuf{Fd::adopt(number), size_t(address - begin)};
}

}  // namespace weft::internal::cuda
