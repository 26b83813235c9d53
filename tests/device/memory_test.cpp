// memory_test.cpp: weftMemAlloc: memory of the current device, given back once; calls take it.
#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

namespace {

void* allocate_on(int device, size_t bytes) {
    const Current current(device);
    void* memory = nullptr;
    demand(weftMemAlloc(&memory, bytes));
    return memory;
}

template <class Value>
Value attribute(CUpointer_attribute which, const void* address) {
    const Current current(0);
    Value value{};
    demand(cuPointerGetAttribute(&value, which, reinterpret_cast<CUdeviceptr>(address)));
    return value;
}

}  // namespace

TEST_CASE("memory of a device is of the one that is current, in whole pages, and each allocation is its own",
          "[memory]") {
    const int last = devices() - 1;
    void *one = allocate_on(last, 1), *other = allocate_on(0, 3 << 20), *none = allocate_on(0, 0);
    CHECK(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, one) == last);
    CHECK(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, other) == 0);
    CHECK(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, one) == size_t(2) << 20);
    CHECK(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, other) == size_t(4) << 20);
    CHECK((none != nullptr && none != other));
    CHECK(attribute<uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, one) ==
          uint64_t(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    // Every device reaches it, to the last byte.
    for (int device = 0; device < devices(); ++device) {
        const Current current(device);
        demand(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(other), 7, size_t(4) << 20, nullptr));
        demand(cuStreamSynchronize(nullptr));
    }
    for (void* memory : {one, other, none}) demand(weftMemFree(memory));
    CHECK_REFUSED(weftMemFree(one), nullptr, "memory.not-allocated");
}

TEST_CASE("device memory without a current device is refused, and the error says what is missing", "[memory]") {
    void* memory = &memory;
    demand(cuCtxSetCurrent(nullptr));
    CHECK_REFUSED(weftMemAlloc(&memory, 77), nullptr, "gpu.no-device");
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains("weftHostAlloc"));
    CHECK(memory == nullptr);
    const Current current(0);
    CHECK_REFUSED(weftMemAlloc(&memory, SIZE_MAX), nullptr, "cuda.resources");
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains(" 18446744073709551615 bytes"));
    CHECK_REFUSED(weftMemAlloc(&memory, size_t(1) << 40), nullptr, "cuda.resources");
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains(" 1099511627776 bytes"));
    CHECK(memory == nullptr);
}

TEST_CASE("memory of a device that is allocated while a stream is captured is no part of the graph", "[memory]") {
    const Stream stream(0);
    const Current current(0);
    demand(cuStreamBeginCapture(stream.handle, CU_STREAM_CAPTURE_MODE_GLOBAL));
    void* memory = nullptr;
    demand(weftMemAlloc(&memory, 100));
    demand(weftMemFree(memory));
    CUgraph graph;
    demand(cuStreamEndCapture(stream.handle, &graph));
    demand(cuGraphDestroy(graph));
}

TEST_CASE("a device without memory for descriptors allocates ordinary memory", "[memory][fake]") {
    const int device = devices() - 1;
    fake::add_setting("attribute * 103 0");
    void* const memory = allocate_on(device, 1000);
    fake::add_setting("attribute * 103 1");
    CHECK(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory) == 1000);
    CHECK(attribute<bool>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
    demand(weftMemFree(memory));
}

TEST_CASE("a device that refuses memory for descriptors allocates ordinary memory", "[memory][fake]") {
    const int device = devices() - 1;
    SECTION("that network cards reach") {
        fake::add_setting("attribute * 110 1; fault cuMemCreate 1 801");
        void* const memory = allocate_on(device, 1000);
        CHECK(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory) == size_t(2) << 20);
        demand(weftMemFree(memory));
        fake::add_setting("attribute * 110 0");
    }
    SECTION("that is passed by descriptors") {
        fake::add_setting("fault cuMemCreate 1 801");
        void* const memory = allocate_on(device, 1000);
        CHECK(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory) == 1000);
        demand(weftMemFree(memory));
    }
}

}  // namespace weft::internal::test
