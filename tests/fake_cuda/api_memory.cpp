// api_memory.cpp: the fake driver: allocations, what an address is, copies.
#include <sys/mman.h>

#include <cstring>

#include "tests/fake_cuda/memory.hpp"
#include "tests/fake_cuda/work.hpp"

using namespace weft::internal::fake;

namespace {

uintptr_t number(CUdeviceptr address) { return uintptr_t(address); }
uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

// A range backed by a memfd of its own.
CUresult allocate(Context* context, Range::Kind kind, size_t bytes, uintptr_t& base) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(world().mutex);
    const auto physical =
        make_physical(bytes, context->device, 0, kind == Range::Kind::pinned ? "fake_cuda_host" : "fake_cuda");
    if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
    base = map_shared(*physical);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    Range range{.kind = kind, .base = base, .bytes = bytes, .context = context, .physical = physical};
    range.buffer = world().next_id++;
    memory().ranges[base] = range;
    return CUDA_SUCCESS;
}

CUresult release(uintptr_t base, Range::Kind kind) {
    std::lock_guard lock(world().mutex);
    const auto found = memory().ranges.find(base);
    if (found == memory().ranges.end() || found->second.kind != kind) return CUDA_ERROR_INVALID_VALUE;
    make_inaccessible(base, whole_pages(found->second.bytes));
    memory().ranges.erase(found);
    return CUDA_SUCCESS;
}

// One attribute of an address; false: CUDA does not know the address, and the answer is what it says then.
bool answer(CUpointer_attribute which, void* to, uintptr_t address, CUresult& result) {
    result = CUDA_SUCCESS;
    const Range* range = memory().find(address);
    const auto* piece =
        range != nullptr && range->kind == Range::Kind::reserved ? memory().find_piece(address) : nullptr;
    if (range != nullptr && range->kind == Range::Kind::reserved && piece == nullptr) range = nullptr;
    const bool host =
        range != nullptr && (range->kind == Range::Kind::pinned || range->kind == Range::Kind::registered);
    const auto give = [&](auto value) { std::memcpy(to, &value, sizeof value); };
    switch (which) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: give(range != nullptr ? range->context : nullptr); break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            give(range == nullptr ? 0u : unsigned(host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            give(range == nullptr || (which == CU_POINTER_ATTRIBUTE_HOST_POINTER && !host) ? uintptr_t(0) : address);
            break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            give(range == nullptr ? uint64_t(0) : piece != nullptr ? piece->second.buffer : range->buffer);
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            give(unsigned(range != nullptr && range->kind == Range::Kind::managed));
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            give(range == nullptr ? -2 : piece != nullptr ? piece->second.physical->device : range->context->device);
            break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            give(bool(range != nullptr && range->kind == Range::Kind::device));
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: give(range == nullptr ? uintptr_t(0) : range->base); break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: give(range == nullptr ? size_t(0) : range->bytes); break;
        case CU_POINTER_ATTRIBUTE_MAPPED: give(bool(range != nullptr)); break;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            give(piece != nullptr ? piece->second.physical->handle_types : uint64_t(0));
            break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            give(range != nullptr && range->kind == Range::Kind::pool ? uintptr_t(1) : uintptr_t(0));
            break;
        default: result = CUDA_ERROR_INVALID_VALUE;
    }
    return range != nullptr;
}

bool on_host(uintptr_t address) {
    std::lock_guard lock(world().mutex);
    const Range* range = memory().find(address);
    return range == nullptr || range->kind == Range::Kind::pinned || range->kind == Range::Kind::registered;
}

// An aligned word in one piece: the host may read and write it meanwhile.
void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
    if (bytes != sizeof(uint64_t) || number(to) % bytes != 0 || number(from) % bytes != 0) {
        std::memmove(to, from, bytes);
        return;
    }
    auto* const source = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(from));
    std::atomic_ref(*reinterpret_cast<uint64_t*>(to))
        .store(std::atomic_ref(*source).load(std::memory_order_relaxed), std::memory_order_relaxed);
}

// The checks are made now, and the bytes move when their turn comes.
CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle, bool wait) {
    FAKE_CURRENT(context);
    std::shared_ptr<Stream> stream;
    if (const CUresult early = find_stream(handle, context, stream); early != CUDA_SUCCESS) return early;
    bool to_pageable = false, from_pageable = false;
    if (const CUresult early = check_access(stream->context, number(to), bytes, to_pageable); early != CUDA_SUCCESS)
        return early;
    if (const CUresult early = check_access(stream->context, number(from), bytes, from_pageable); early != CUDA_SUCCESS)
        return early;
    if (wait)
        if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    auto* target = reinterpret_cast<std::byte*>(to);
    const auto* source = reinterpret_cast<const std::byte*>(from);
    Run run;
    if (from_pageable && !wait) {
        // As the real one: staged before the call returns.
        std::vector<std::byte> staged(source, source + bytes);
        run = [target, staged = std::move(staged)] {
            std::memcpy(target, staged.data(), staged.size());
            return CUDA_SUCCESS;
        };
    } else {
        run = [target, source, bytes] {
            copy_bytes(target, source, bytes);
            return CUDA_SUCCESS;
        };
    }
    // From host memory to host memory, pinned or not, the real one is synchronous. A captured copy has not `ended`.
    const bool waits = wait || to_pageable || (on_host(number(to)) && on_host(number(from)));
    Done ended;
    const CUresult result = enqueue(stream, std::move(run), {}, &ended);
    if (result == CUDA_SUCCESS && ended && waits) ended->wait();
    return result;
}

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    FAKE_ENTER(MemAlloc);
    FAKE_CURRENT(context);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    uintptr_t base = 0;
    const CUresult result = allocate(context, Range::Kind::device, bytes, base);
    *address = base;
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned) {
    FAKE_ENTER(MemAllocManaged);
    FAKE_CURRENT(context);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    uintptr_t base = 0;
    const CUresult result = allocate(context, Range::Kind::managed, bytes, base);
    *address = base;
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream) {
    FAKE_ENTER(MemAllocAsync);
    FAKE_CURRENT(context);
    uintptr_t base = 0;
    const CUresult result = allocate(context, Range::Kind::pool, bytes, base);
    *address = base;
    return result;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    FAKE_ENTER(MemFreeAsync);
    FAKE_CURRENT(context);
    std::shared_ptr<Stream> stream;
    if (const CUresult early = find_stream(handle, context, stream); early != CUDA_SUCCESS) return early;
    return enqueue(stream, [address] { return release(number(address), Range::Kind::pool); });
}

// Waits for the device, as the real one may: freeing while a kernel waits for a rank that is to come is a bug.
CUresult cuMemFree_v2(CUdeviceptr address) {
    FAKE_ENTER(MemFree);
    FAKE_CURRENT(context);
    if (address == 0) return CUDA_SUCCESS;
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    wait_all(outstanding(context));
    const CUresult result = release(number(address), Range::Kind::device);
    return result == CUDA_SUCCESS ? result : release(number(address), Range::Kind::managed);
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    FAKE_ENTER(MemGetInfo);
    FAKE_CURRENT(context);
    std::lock_guard lock(world().mutex);
    *total = world().setting.memory_bytes;
    *free_bytes = *total - world().devices[size_t(context->device)]->used_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
    FAKE_ENTER(MemHostAlloc);
    FAKE_CURRENT(context);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    void* base = mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    std::lock_guard lock(world().mutex);
    Range range{.kind = Range::Kind::pinned, .base = number(base), .bytes = bytes, .context = context};
    range.buffer = world().next_id++;
    memory().ranges[range.base] = range;
    *address = base;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* address) {
    FAKE_ENTER(MemFreeHost);
    FAKE_CURRENT(context);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    wait_all(outstanding(context));
    return release(number(address), Range::Kind::pinned);
}

CUresult cuMemHostRegister_v2(void* address, size_t bytes, unsigned) {
    FAKE_ENTER(MemHostRegister);
    FAKE_CURRENT(context);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(world().mutex);
    for (const auto& [base, range] : memory().ranges)
        if (base < number(address) + bytes && number(address) < base + range.bytes)
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    Range range{.kind = Range::Kind::registered, .base = number(address), .bytes = bytes, .context = context};
    range.buffer = world().next_id++;
    memory().ranges[range.base] = range;
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* address) {
    FAKE_ENTER(MemHostUnregister);
    FAKE_CURRENT(context);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    wait_all(outstanding(context));
    std::lock_guard lock(world().mutex);
    const auto found = memory().ranges.find(number(address));
    if (found == memory().ranges.end() || found->second.kind != Range::Kind::registered)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    memory().ranges.erase(found);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device_address, void* address, unsigned) {
    FAKE_ENTER(MemHostGetDevicePointer);
    std::lock_guard lock(world().mutex);
    const Range* range = memory().find(number(address));
    if (range == nullptr || (range->kind != Range::Kind::pinned && range->kind != Range::Kind::registered))
        return CUDA_ERROR_INVALID_VALUE;
    *device_address = number(address);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
    FAKE_ENTER(MemGetAddressRange);
    FAKE_CURRENT(context);
    std::lock_guard lock(world().mutex);
    const Range* range = memory().find(number(address));
    if (range == nullptr || range->kind == Range::Kind::registered) return CUDA_ERROR_NOT_FOUND;
    uintptr_t from = range->base;
    size_t length = range->bytes;
    if (range->kind == Range::Kind::reserved) {
        const auto* piece = memory().find_piece(number(address));
        if (piece == nullptr) return CUDA_ERROR_NOT_FOUND;
        from = piece->first;
        length = piece->second.bytes;
    }
    if (base != nullptr) *base = from;
    if (bytes != nullptr) *bytes = length;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* to, CUpointer_attribute which, CUdeviceptr address) {
    FAKE_ENTER(PointerGetAttribute);
    std::lock_guard lock(world().mutex);
    CUresult result = CUDA_SUCCESS;
    const bool known = answer(which, to, number(address), result);
    return known ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** to, CUdeviceptr address) {
    FAKE_ENTER(PointerGetAttributes);
    FAKE_CURRENT(context);
    std::lock_guard lock(world().mutex);
    for (unsigned i = 0; i < count; ++i) {
        CUresult result = CUDA_SUCCESS;
        answer(which[i], to[i], number(address), result);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    FAKE_ENTER(Memcpy);
    return copy(to, from, bytes, nullptr, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    FAKE_ENTER(MemcpyAsync);
    return copy(to, from, bytes, stream, false);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream handle) {
    FAKE_ENTER(MemsetD8Async);
    FAKE_CURRENT(context);
    std::shared_ptr<Stream> stream;
    if (const CUresult early = find_stream(handle, context, stream); early != CUDA_SUCCESS) return early;
    bool pageable = false;
    if (const CUresult early = check_access(stream->context, number(to), bytes, pageable); early != CUDA_SUCCESS)
        return early;
    if (pageable) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, [to, value, bytes] {
        std::memset(reinterpret_cast<void*>(to), value, bytes);
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
