// driver.hpp: the CUDA driver, opened at run time: a table of its functions, and its failures as Status. Neither
// libcuda nor libcudart is linked. A machine without a driver is no error here: whoever wants one gets the sentence why
// not.
#pragma once
#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>

#include "src/base/result.hpp"

namespace weft::internal::cuda {

// driver.MemAlloc(...) calls cuMemAlloc in the form of the version that driver.def names; null where the driver has
// none.
struct DriverFunctions {
#define WEFT_CUDA_FUNCTION(name, version, need) PFN_cu##name##_v##version name = nullptr;
#include "src/drivers/cuda/driver.def"
#undef WEFT_CUDA_FUNCTION
};

// An opened and initialised driver. Lives until the process ends; thread-safe.
class Driver : public DriverFunctions {
  public:
    // The process's driver, opened at the first call; else the sentence why there is none. In a child after fork of a
    // process that had one it fails: CUDA does not survive fork.
    static Result<const Driver*> get();
    // Whether the process has initialised CUDA. Who asks here first opens no driver for programs that use none, and
    // does not initialise it for those that may want to fork before.
    static bool in_use();
    // Another one, for tests. `path` as in WEFT_CUDA_LIBRARY.
    static Result<const Driver*> open(const std::string& path);

    // Drivers before that lack functions which Weft needs throughout.
    static constexpr int oldest_version = 11040;
    int version() const { return version_; }              // 12040: of the newest CUDA that it serves
    const std::string& file() const { return library_; }  // what was opened
    // Whether this is the process that opened it. Owners give nothing back in a child after fork: it is its parent's.
    bool here() const;

    // ok, or weftUnhandledCudaError (a resource: weftSystemError): "CUDA could not allocate 64 bytes:
    // CUDA_ERROR_OUT_OF_MEMORY (2), out of memory". The format says what was being done, after "could not".
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
