// kernel.hpp: device code, loaded through the driver; its kernels; launching them.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// Of a fatbin or cubin. Once a process: it belongs to no context, and is unloaded only when the process ends.
class Library {
  public:
    Library() = default;
    // `code` stays valid as long as the library. Fails with what to do if the driver is too old for the code.
    static Result<Library> load(const Driver& driver, const void* code);
    CUlibrary handle() const { return handle_; }
    const Driver& driver() const { return *driver_; }
    explicit operator bool() const { return handle_ != nullptr; }

  private:
    const Driver* driver_ = nullptr;
    CUlibrary handle_ = nullptr;
};

// What a launch needs beside the kernel's arguments.
struct LaunchShape {
    unsigned blocks = 1;
    unsigned threads = 1;  // of a block
    unsigned shared_bytes = 0;
    unsigned cluster_blocks = 0;       // 0: no clusters
    bool cooperative = false;          // all blocks run at once, or the launch fails
    bool remote_sync_domain = false;   // fences do not wait for stores of other kernels; devices from sm_90 on
    std::optional<int> priority = {};  // none: the stream's
};

// A kernel in one context, loaded: a lazy loading at the first launch could wait for kernels that wait for this one.
// A value; thread-safe.
class Kernel {
  public:
    Kernel() = default;
    // `shared_bytes`: the most dynamic shared memory that it will be launched with.
    static Result<Kernel> load(const Library& library, const Context& context, const char* name,
                               unsigned shared_bytes = 0);
    const char* name() const { return name_; }
    CUfunction handle() const { return function_; }
    int threads_max() const { return threads_max_; }  // of a block, given its registers
    // How many of its blocks run at once on one multiprocessor.
    Result<int> blocks_per_multiprocessor(int threads, size_t shared_bytes) const;
    // Enqueues it; the arguments are copied before the call returns. The context must be current. The function is one
    // call of the driver: for the hot path too.
    CUresult enqueue(const LaunchShape& shape, CUstream stream, void** arguments) const;
    // The same with a sentence.
    Status launch(const LaunchShape& shape, CUstream stream, void** arguments) const;

  private:
    const Driver* driver_ = nullptr;
    const char* name_ = "";
    CUfunction function_ = nullptr;
    int threads_max_ = 0;
};

}  // namespace weft::internal::cuda
