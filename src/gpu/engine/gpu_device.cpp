#include "src/gpu/engine/gpu_device.hpp"

#include <cctype>
#include <mutex>
#include <set>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/engine/gpu_calls.hpp"

namespace weft::internal {

using cuda::Context;
using cuda::device_count;
using cuda::Driver;
using cuda::KernelSet;
using cuda::RelaxedCapture;

void warn_of_device_once(const std::string& sentence, std::string reason) {
    struct Said {
        std::mutex mutex;
        std::set<std::string> reasons;
    };
    static PerProcess<Said> of_process;
    Said& said = of_process.get();
    {
        std::lock_guard lock(said.mutex);
        if (!said.reasons.insert(std::move(reason)).second) return;
    }
    WEFT_LOG(warn, init, "{}", sentence);
}

namespace {

// The reason without the number of its device.
std::string of_any_device(std::string reason, int device) {
    const std::string number = std::to_string(device), name = "device " + number;
    for (size_t at = 0; (at = reason.find(name, at)) != std::string::npos; ++at)
        if (at + name.size() == reason.size() || !isdigit(static_cast<unsigned char>(reason[at + name.size()])))
            reason.erase(at + name.size() - number.size(), number.size());
    return reason;
}

}  // namespace

Result<std::optional<GpuDevice>> GpuDevice::find(int which) {
    if (which < 0 && !Driver::in_use()) return std::optional<GpuDevice>();
    auto driver = Driver::get();
    if (!driver) {
        if (which >= 0) return driver.take_status();
        const std::string why = "no device: " + driver.status().sentence();
        warn_of_device_once(why, why);
        return std::optional<GpuDevice>();
    }
    GpuDevice found;
    found.driver = *driver;
    // A capture in any thread would forbid opening a context, and would be invalidated by it.
    const RelaxedCapture relaxed(**driver);
    CUcontext context = nullptr;
    if (which == current_gpu) {
        WEFT_TRY((*driver)->check((*driver)->CtxGetCurrent(&context), "query the current context"));
        if (context != nullptr) {
            CUdevice device = 0;
            WEFT_TRY((*driver)->check((*driver)->CtxGetDevice(&device), "query the device of the current context"));
            which = device;
        }
    } else if (which >= 0) {
        auto count = device_count(**driver);
        if (!count) return count.take_status();
        if (which >= *count)
            return fail(error::argument_device, "device {} does not exist: this process sees {} devices, from 0 on",
                        which, *count);
    }
    if (which < 0) {
        found.unsupported_reason =
            "no device belongs to this communicator: one must be current in the thread that calls weftCommInitRank "
            "(cudaSetDevice, cuCtxSetCurrent)";
        return std::optional(std::move(found));
    }
    found.facts.ordinal = which;
    found.facts.use = DeviceFacts::refused;
    auto bare = Context::retain(**driver, which);
    if (!bare) {
        found.unsupported_reason = bare.status().sentence();
    } else if (context != nullptr && context != bare->handle()) {
        found.unsupported_reason = fmt::format(
            "the context that was current is not device {}'s primary one, which cudaSetDevice makes current", which);
    } else if (auto kernels = KernelSet::of_device(**driver, which)) {
        found.kernels = std::move(*kernels);
        found.facts = found.kernels->facts();
    } else {
        found.bare = std::move(*bare);
        found.facts.use = DeviceFacts::copied;
        const std::string why = kernels.status().sentence();
        warn_of_device_once(
            fmt::format("no kernels of Weft's run on device {}, so its memory is copied to the host's and back, which "
                        "is slow: {} (further devices are not reported)",
                        which, why),
            "copied: " + of_any_device(why, which));
    }
    if (!found.unsupported_reason.empty())
        warn_of_device_once(fmt::format("device {} is not used: {} (further devices are not reported)", which,
                                        found.unsupported_reason),
                            "not used: " + of_any_device(found.unsupported_reason, which));
    return std::optional(std::move(found));
}

}  // namespace weft::internal
