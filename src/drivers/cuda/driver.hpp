// driver.hpp: the CUDA driver, opened at run time: a table of its functions, and its failures as Status. Weft links
// neither libcuda nor libcudart. A machine without a driver is no error by itself.
#pragma once
#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>

#include "src/base/result.hpp"

namespace weft::internal::cuda {

// driver.MemAlloc(...) calls cuMemAlloc in the version that driver.def names. Null: the driver lacks the function.
struct DriverFunctions {
#define WEFT_CUDA_FUNCTION(name, version, need) PFN_cu##name##_v##version name = nullptr;
#include "src/drivers/cuda/driver.def"
#undef WEFT_CUDA_FUNCTION
};

// An opened and initialised driver. It lives until the process ends. Thread-safe.
class Driver : public DriverFunctions {
  public:
    // The process's driver, opened at the first call. On failure the error has the reason. Fails in a forked child of a
    // process that had used CUDA, because CUDA does not survive fork.
    static Result<const Driver*> get();
    // Whether the process has initialised CUDA. A check before get() avoids opening or initialising a driver in
    // programs that use no GPU, or that fork later.
    static bool in_use();
    // Another instance, for tests. `path` as in WEFT_CUDA_LIBRARY.
    static Result<const Driver*> open(const std::string& path);

    // Older drivers lack functions that Weft requires.
    static constexpr int oldest_version = 11040;
    int version() const { return version_; }              // 12040; the newest CUDA version that it supports
    const std::string& file() const { return library_; }  // the opened file
    // Whether this process opened the driver. In a forked child owners release nothing, because it belongs to the
    // parent.
    bool here() const;

    // ok, or cuda.call (cuda.resources if a resource ran out): "CUDA could not allocate 64 bytes:
    // CUDA_ERROR_OUT_OF_MEMORY (2), out of memory". The format is the text after "could not".
    template <class... Arguments>
    Status check(CUresult result, fmt::format_string<Arguments...> doing, Arguments&&... arguments) const {
        if (result == CUDA_SUCCESS) [[likely]]
            return weft::internal::ok();
        return failure(result, fmt::format(doing, std::forward<Arguments>(arguments)...));
    }
    std::string name_of(CUresult result) const;  // CUDA_ERROR_OUT_OF_MEMORY (2)
    Status failure(CUresult result, const std::string& doing) const;
    // For functions that may be null.
    Status need(bool present, const char* function) const;

  private:
    Driver() = default;
    std::string library_;
    int version_ = 0;
    uint64_t process_ = 0;
};

// 12.4 for 12040.
std::string version_text(int version);

}  // namespace weft::internal::cuda
