#include "src/drivers/cuda/context.hpp"

#include "src/base/fd.hpp"
#include "src/drivers/cuda/device.hpp"

namespace weft::internal::cuda {

Result<Context> Context::retain(const Driver& driver, int device) {
    CUdevice handle = 0;
    WEFT_TRY(driver.check(driver.DeviceGet(&handle, device), "find device {}", device));
    Context context;
    const StandardNumbers held;
    WEFT_TRY(driver.check(driver.DevicePrimaryCtxRetain(&context.handle_, handle),
                          "open a context on device {} (is it in exclusive mode, or used up?)", device));
    context.driver_ = &driver;
    context.device_ = device;
    return context;
}

Result<Context> Context::of_any_device(const Driver& driver) {
    const auto count = device_count(driver);
    if (!count) return count.status().copy();
    for (int number = 0; number < *count; ++number) {
        unsigned flags = 0;
        int active = 0;
        WEFT_TRY(driver.check(driver.DevicePrimaryCtxGetState(number, &flags, &active), "look at device {}", number));
        if (active) return retain(driver, number);
    }
    return Context();
}

Context& Context::operator=(Context&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    return *this;
}

Context::~Context() {
    if (handle_ != nullptr && driver_->here()) driver_->DevicePrimaryCtxRelease(device_);
}

Status Context::enable_peer(const Context& peer) const {
    ContextScope scope(*this);
    WEFT_TRY(scope.take_status());
    const CUresult result = driver_->CtxEnablePeerAccess(peer.handle(), 0);
    if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return weft::internal::ok();
    return driver_->check(result, "let device {} reach the memory of device {}", device_, peer.device());
}

Status Context::synchronize() const {
    ContextScope scope(*this);
    WEFT_TRY(scope.take_status());
    return driver_->check(driver_->CtxSynchronize(), "wait for device {}", device_);
}

ContextScope::ContextScope(const Driver& driver, CUcontext context) : driver_(driver) {
    CUcontext current = nullptr;
    // Usually the caller has already made the context current.
    if (driver_.CtxGetCurrent(&current) == CUDA_SUCCESS && current == context) return;
    status_ = driver_.check(driver_.CtxPushCurrent(context), "make a context current");
    pushed_ = status_.ok();
}

ContextScope::~ContextScope() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.CtxPopCurrent(&popped);
}

Result<std::optional<int>> current_device(const Driver& driver) {
    CUcontext context = nullptr;
    WEFT_TRY(driver.check(driver.CtxGetCurrent(&context), "query the current context"));
    if (context == nullptr) return std::optional<int>();
    CUdevice device = 0;
    WEFT_TRY(driver.check(driver.CtxGetDevice(&device), "query the device of the current context"));
    return std::optional<int>(device);
}

}  // namespace weft::internal::cuda
