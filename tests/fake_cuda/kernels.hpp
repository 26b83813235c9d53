// kernels.hpp: kernels for the fake driver: C++ functions that stand for device code, found by name. A shared object
// that exports fake_cuda_kernels() and is named by FAKE_CUDA_KERNELS is loaded at cuInit; a test that links the fake
// driver may also call fake_cuda_add_kernel() itself.
//
//   void scale(FakeBlock& block, float* data, size_t count, float factor) { ... }   // once a block, for all its
//   threads extern "C" void fake_cuda_kernels(FakeKernelTable add) { add(fake_kernel<scale>("scale")); }
#pragma once
#include <cstddef>
#include <tuple>
#include <utility>

// One block of a launch. It runs once, in a thread of the host; the function itself plays the block's threads. Blocks
// run at the same time as far as the device has room, and the rest after them.
struct FakeBlock {
    unsigned grid[3], block[3];  // as launched: blocks of the grid, threads of a block
    unsigned index[3];           // of this block in the grid
    std::byte* shared;           // dynamic shared memory, of this block alone
    unsigned shared_bytes;
    int device;
    bool cooperative;
    void** parameters;  // copies of the launch's arguments
    void* launch;       // the fake driver's own
    // All blocks of a cooperative launch meet here.
    void (*sync_grid)(FakeBlock&);
    // The launch fails: the context is unusable from then on, as after a real kernel's fault. `error` is a CUresult.
    void (*fail)(FakeBlock&, int error);
};

struct FakeKernel {
    const char* name;
    void (*run)(FakeBlock&);
    int parameters;
    const size_t* parameter_bytes;
    int threads_max = 1024;     // of a block, as registers would limit it
    unsigned shared_bytes = 0;  // static shared memory
    int registers = 32;         // of a thread
};
using FakeKernelTable = void (*)(const FakeKernel& kernel);

extern "C" void fake_cuda_add_kernel(const FakeKernel& kernel);

// The row of a function whose parameters are those of the kernel.
template <auto function>
struct FakeKernelOf;
template <class... Parameters, void (*function)(FakeBlock&, Parameters...)>
struct FakeKernelOf<function> {
    static constexpr size_t bytes[sizeof...(Parameters) + 1] = {sizeof(Parameters)...};
    template <size_t... places>
    static void call(FakeBlock& block, std::index_sequence<places...>) {
        function(block, *static_cast<Parameters*>(block.parameters[places])...);
    }
    static void run(FakeBlock& block) { call(block, std::index_sequence_for<Parameters...>()); }
    static constexpr int count = sizeof...(Parameters);
};
template <auto function>
FakeKernel fake_kernel(const char* name) {
    using Row = FakeKernelOf<function>;
    return {name, Row::run, Row::count, Row::bytes};
}
