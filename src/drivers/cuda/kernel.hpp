// kernel.hpp: device code that is loaded through the driver, its kernels, and their launches.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// The code of a fatbin or cubin, loaded once per process. It belongs to no context and is unloaded when the process
// ends.
class Library {
  public:
    Library() = default;
    // `code` must stay valid as long as the library. The error says what to do if the driver is too old for the code.
    static Result<Library> load(const Driver& driver, const void* code);
    CUlibrary handle() const { return handle_; }
    const Driver& driver() const { return *driver_; }
    explicit operator bool() const { return handle_ != nullptr; }

  private:
    const Driver* driver_ = nullptr;
    CUlibrary handle_ = nullptr;
};

// The parameters of a launch other than the kernel's arguments.
struct LaunchShape {
    unsigned blocks = 1;
    unsigned threads = 1;  // per block
    unsigned shared_bytes = 0;
    unsigned cluster_blocks = 0;       // 0: no clusters
    bool cooperative = false;          // all blocks run at once, or the launch fails
    bool remote_sync_domain = false;   // fences ignore stores of other kernels; sm_90 and later
    std::optional<int> priority = {};  // none: the stream's priority
};

// A kernel that is loaded in one context. Lazy loading at the first launch could wait for kernels that wait for this
// one. A value; thread-safe.
class Kernel {
  public:
    Kernel() = default;
    // `shared_bytes`: the most dynamic shared memory of any launch.
    static Result<Kernel> load(const Library& library, const Context& context, const char* name,
                               unsigned shared_bytes = 0);
    const char* name() const { return name_; }
    CUfunction handle() const { return function_; }
    int threads_max() const { return threads_max_; }  // per block, limited by the kernel's registers
    // The number of blocks that run at once on one multiprocessor.
    Result<int> blocks_per_multiprocessor(int threads, size_t shared_bytes) const;
    // Enqueues the kernel and copies the arguments. The context must be current. One driver call: usable on the hot
    // path.
    CUresult enqueue(const LaunchShape& shape, CUstream stream, void** arguments) const;
    // The same, with a Status as the result.
    Status launch(const LaunchShape& shape, CUstream stream, void** arguments) const;

  private:
    const Driver* driver_ = nullptr;
    const char* name_ = "";
    CUfunction function_ = nullptr;
    int threads_max_ = 0;
};

}  // namespace weft::internal::cuda
