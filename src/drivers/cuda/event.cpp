#include "src/drivers/cuda/event.hpp"

namespace weft::internal::cuda {

Result<Event> Event::create(const Context& context, EventUse kind) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    const unsigned flags = kind == EventUse::timing         ? CU_EVENT_DEFAULT
                           : kind == EventUse::interprocess ? CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS
                                                            : CU_EVENT_DISABLE_TIMING;
    Event event;
    WEFT_TRY(driver.check(driver.EventCreate(&event.handle_, flags), "make an event on device {}", context.device()));
    event.driver_ = &driver;
    return event;
}

Result<Event> Event::import(const Context& context, const CUipcEventHandle& handle) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    Event event;
    WEFT_TRY(driver.check(driver.IpcOpenEventHandle(&event.handle_, handle), "open another process's event"));
    event.driver_ = &driver;
    return event;
}

Event& Event::operator=(Event&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    return *this;
}

Event::~Event() {
    if (handle_ != nullptr && driver_->here()) driver_->EventDestroy(handle_);
}

Status Event::record(CUstream stream) const {
    return driver_->check(driver_->EventRecord(handle_, stream), "record an event (is it of the stream's device?)");
}

Result<bool> Event::done() const {
    const CUresult result = driver_->EventQuery(handle_);
    if (result == CUDA_ERROR_NOT_READY) return false;
    WEFT_TRY(driver_->check(result, "look at an event"));
    return true;
}

Status Event::synchronize() const { return driver_->check(driver_->EventSynchronize(handle_), "wait for an event"); }

Result<float> Event::milliseconds_since(const Event& earlier) const {
    float milliseconds = 0;
    WEFT_TRY(driver_->check(driver_->EventElapsedTime(&milliseconds, earlier.handle_, handle_),
                            "query the time between two events"));
    return milliseconds;
}

Result<CUipcEventHandle> Event::exported() const {
    CUipcEventHandle handle;
    WEFT_TRY(driver_->check(driver_->IpcGetEventHandle(&handle, handle_), "export an event"));
    return handle;
}

}  // namespace weft::internal::cuda
