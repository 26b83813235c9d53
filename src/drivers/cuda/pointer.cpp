#include "src/drivers/cuda/pointer.hpp"

#include "src/drivers/cuda/stream.hpp"

namespace weft::internal::cuda {

const char* name_of(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::unknown: return "host memory";
        case MemoryKind::pinned: return "pinned host memory";
        case MemoryKind::device: return "device memory";
        case MemoryKind::managed: return "managed memory";
        case MemoryKind::vmm: return "VMM memory";
        case MemoryKind::pool: return "pool memory";
    }
    return "memory";
}

namespace {

// This call succeeds for VMM memory only.
bool has_allocation_handle(const Driver& driver, const void* address) {
    const RelaxedCapture relaxed(driver);
    CUmemGenericAllocationHandle handle = 0;
    if (driver.MemRetainAllocationHandle(&handle, const_cast<void*>(address)) != CUDA_SUCCESS) return false;
    driver.MemRelease(handle);
    return true;
}

}  // namespace

Result<PointerFacts> describe_pointer(const Driver& driver, const void* address, KnownVmmMemory* known) {
    const auto pointer = reinterpret_cast<CUdeviceptr>(address);
    PointerFacts facts;
    CUmemorytype type{};
    unsigned managed = 0;
    CUmemoryPool pool = nullptr;
    // Drivers write truth values with different widths.
    unsigned long long buffer = 0, handle_types = 0, legacy_ipc = 0;
    // One call for all attributes. For an unknown address it succeeds and leaves zeros.
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,         CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,          CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
    void* answers[] = {&type,   &managed, &facts.device, &facts.base,  &facts.bytes,
                       &buffer, &pool,    &legacy_ipc,   &handle_types};
    static_assert(sizeof wanted / sizeof *wanted == sizeof answers / sizeof *answers);
    const CUresult result = driver.PointerGetAttributes(sizeof wanted / sizeof *wanted, wanted, answers, pointer);
    if (result == CUDA_ERROR_INVALID_VALUE) return PointerFacts{};
    WEFT_TRY(driver.check(result, "query which memory {:#x} lies in", pointer));
    if (int(type) == 0) return PointerFacts{};

    facts.buffer_id = buffer;
    if (managed != 0) {
        facts.kind = MemoryKind::managed;
    } else if (type == CU_MEMORYTYPE_HOST) {
        facts.kind = MemoryKind::pinned;
    } else if (pool != nullptr) {
        facts.kind = MemoryKind::pool;
    } else {
        // VMM memory has no cuIpc handle.
        const bool vmm =
            legacy_ipc == 0 && ((known && known->contains(buffer)) || has_allocation_handle(driver, address));
        if (vmm) {
            if (known) known->insert(buffer);
            facts.kind = MemoryKind::vmm;
            facts.fd = (handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
        } else {
            facts.kind = MemoryKind::device;
            facts.ipc = legacy_ipc != 0;
        }
    }
    return facts;
}

}  // namespace weft::internal::cuda
