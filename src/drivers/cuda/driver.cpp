#include "src/drivers/cuda/driver.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/base/process_token.hpp"
#include "src/drivers/library.hpp"

namespace weft::internal::cuda {

namespace {

// cuGetProcAddress in either of its forms, by which all other functions are found.
class Finder {
  public:
    explicit Finder(const DynamicLibrary& library)
        : newer_(reinterpret_cast<PFN_cuGetProcAddress_v12000>(library.find("cuGetProcAddress_v2"))),
          older_(reinterpret_cast<PFN_cuGetProcAddress_v11030>(library.find("cuGetProcAddress"))) {}
    explicit operator bool() const { return newer_ != nullptr || older_ != nullptr; }

    // Null if the driver lacks the function: some drivers return an error, others only a null pointer. `result` keeps
    // the last error. Handles of streams are passed as they are: 0 is the legacy stream, however the caller was
    // compiled.
    void* find(const char* name, int version, CUresult& result) const {
        void* function = nullptr;
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
        const CUresult answer = newer_ ? newer_(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status)
                                       : older_(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
        if (answer == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS) return function;
        if (answer != CUDA_SUCCESS) result = answer;
        return nullptr;
    }

  private:
    PFN_cuGetProcAddress_v12000 newer_;
    PFN_cuGetProcAddress_v11030 older_;
};

// The token of the process that began to initialise CUDA; 0: none. A child after fork sees its parent's token.
std::atomic<uint64_t> initialised{0};

struct OpenedDriver {
    std::mutex opening;
    const Driver* driver = nullptr;  // never freed
    Status failure;
};

std::string installed_advice() { return "; with NVIDIA's driver installed, look whether nvidia-smi works"; }

}  // namespace

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Result<const Driver*> Driver::get() {
    static PerProcess<OpenedDriver> of_process;
    if (const uint64_t parent = initialised.load(); parent != 0 && parent != process_token())
        return fail(error::cuda_forked,
                    "process {} was forked from a process that had used CUDA, which does not survive fork: use exec "
                    "or multiprocessing's spawn, or fork before CUDA is used",
                    getpid());
    OpenedDriver& opened = of_process.get();
    std::lock_guard lock(opened.opening);
    if (opened.driver == nullptr && opened.failure.ok()) {
        if (Result<const Driver*> result = open(options().cuda_library); result)
            opened.driver = *result;
        else
            opened.failure = result.take_status();
    }
    if (opened.driver != nullptr) return opened.driver;
    return opened.failure.copy();
}

bool Driver::in_use() {
    const std::string& path = options().cuda_library;
    if (path == "none") return false;
    const char* const function = "cuCtxGetCurrent";
    const DynamicLibrary library = DynamicLibrary::loaded(path.empty() ? "libcuda.so.1" : path);
    // A preloaded driver may be a file with any name.
    void* const found = library ? library.find(function) : path.empty() ? dlsym(RTLD_DEFAULT, function) : nullptr;
    const auto current = reinterpret_cast<PFN_cuCtxGetCurrent_v4000>(found);
    CUcontext context = nullptr;
    return current != nullptr && current(&context) == CUDA_SUCCESS;
}

Result<const Driver*> Driver::open(const std::string& path) {
    const std::string name = path.empty() ? "libcuda.so.1" : path;
    if (name == "none") return fail(error::driver_disabled, "WEFT_CUDA_LIBRARY is none: no GPU is used");
    Result<DynamicLibrary> library = DynamicLibrary::open(name);
    if (!library) return fail(error::cuda_driver, "no CUDA driver: {}", library.status().sentence());

    const Finder finder(*library);
    if (!finder)
        return fail(error::cuda_driver, "the CUDA driver {} is older than 11.3: Weft needs {} or newer", name,
                    version_text(oldest_version));
    std::unique_ptr<Driver> driver(new Driver);
    CUresult last = CUDA_SUCCESS;
    std::vector<const char*> missing;
    // The name is spelt here, because cuda.h renames the functions by macros.
#define required true
#define optional false
#define WEFT_CUDA_FUNCTION(name, version, need)                                                         \
    driver->name = reinterpret_cast<PFN_cu##name##_v##version>(finder.find("cu" #name, version, last)); \
    if (driver->name == nullptr && need) missing.push_back("cu" #name);
#include "src/drivers/cuda/driver.def"
#undef WEFT_CUDA_FUNCTION
#undef required
#undef optional
    const std::string stub =
        fmt::format("{} is the CUDA toolkit's stub for linking, not a driver{}", name, installed_advice());
    if (last == CUDA_ERROR_STUB_LIBRARY) return fail(error::cuda_driver, "{}", stub);
    if (driver->DriverGetVersion != nullptr) {
        const CUresult answer = driver->DriverGetVersion(&driver->version_);
        if (answer == CUDA_ERROR_STUB_LIBRARY) return fail(error::cuda_driver, "{}", stub);
        if (answer == CUDA_SUCCESS && driver->version_ < oldest_version)
            return fail(error::cuda_driver, "the CUDA driver {} supports CUDA {}: Weft needs a driver for {} or newer",
                        name, version_text(driver->version_), version_text(oldest_version));
    }
    if (!missing.empty())
        return fail(error::cuda_driver, "the CUDA driver {} lacks {} functions that Weft needs, such as {}", name,
                    missing.size(), missing.front());

    driver->library_ = name;
    driver->process_ = process_token();
    // Set before the call: a process that is forked during cuInit must not call it again.
    initialised.store(driver->process_);
    library->keep();             // cuInit may start threads of the library
    const StandardNumbers held;  // the driver keeps its device files open
    if (const CUresult answer = driver->Init(0); answer != CUDA_SUCCESS)
        return fail(error::cuda_call, "the CUDA driver {} cannot be used: cuInit returned {}{}", name,
                    driver->name_of(answer),
                    answer == CUDA_ERROR_NO_DEVICE ? ": no GPU is visible" : installed_advice());
    WEFT_LOG(info, init, "CUDA driver {} for CUDA {}", name, version_text(driver->version_));
    return driver.release();
}

bool Driver::here() const { return process_ == process_token(); }

std::string Driver::name_of(CUresult result) const {
    const char* text = nullptr;
    if (GetErrorName(result, &text) != CUDA_SUCCESS || text == nullptr) return fmt::format("error {}", int(result));
    return fmt::format("{} ({})", text, int(result));
}

Status Driver::failure(CUresult result, const std::string& doing) const {
    if (!here())
        return fail(error::cuda_forked,
                    "CUDA could not {}: process {} was forked from the process that had initialized CUDA", doing,
                    getpid());
    const char* text = nullptr;
    if (GetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown";
    const bool resources = result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_OPERATING_SYSTEM;
    return fail(resources ? error::cuda_resources : error::cuda_call, "CUDA could not {}: {}, {}", doing,
                name_of(result), text);
}

Status Driver::need(bool present, const char* function) const {
    if (present) return weft::internal::ok();
    return fail(error::cuda_driver, "the CUDA driver {} for CUDA {} has no {}", library_, version_text(version_),
                function);
}

}  // namespace weft::internal::cuda
