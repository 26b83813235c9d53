#include "src/drivers/cuda/stream.hpp"

namespace weft::internal::cuda {

Result<Stream> Stream::create(const Context& context, Priority priority) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    int lowest = 0, highest = 0;
    WEFT_TRY(driver.check(driver.CtxGetStreamPriorityRange(&lowest, &highest), "query the range of stream priorities"));
    Stream stream;
    WEFT_TRY(driver.check(driver.StreamCreateWithPriority(&stream.handle_, CU_STREAM_NON_BLOCKING,
                                                          priority == Priority::highest ? highest : lowest),
                          "make a stream on device {}", context.device()));
    stream.driver_ = &driver;
    return stream;
}

Stream& Stream::operator=(Stream&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    return *this;
}

Stream::~Stream() {
    if (handle_ != nullptr && driver_->here()) driver_->StreamDestroy(handle_);
}

Status Stream::synchronize() const {
    return driver_->check(driver_->StreamSynchronize(handle_), "finish a stream's work");
}

Result<bool> Stream::done() const {
    const CUresult result = driver_->StreamQuery(handle_);
    if (result == CUDA_ERROR_NOT_READY) return false;
    WEFT_TRY(driver_->check(result, "finish a stream's work"));
    return true;
}

Status Stream::wait_for(const Event& event) const {
    return driver_->check(driver_->StreamWaitEvent(handle_, event.handle(), CU_EVENT_WAIT_DEFAULT),
                          "let a stream wait for an event");
}

namespace {

Status describe_capture(const Driver& driver, CUstream stream, StreamFacts& facts) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    const CUresult result = driver.StreamGetCaptureInfo(stream, &status, &id, &facts.graph, nullptr, nullptr);
    // The legacy stream returns this error while another stream is captured. The legacy stream itself is not captured.
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return fail(error::stream_capture,
                    "the legacy stream cannot be used while another blocking stream of its device is captured: use a "
                    "stream made with cudaStreamNonBlocking");
    WEFT_TRY(driver.check(result, "find out whether a stream is captured"));
    if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return fail(error::stream_capture,
                    "an earlier error invalidated the stream's capture: end the capture and begin it again");
    facts.capturing = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    facts.capture_id = facts.capturing ? id : 0;
    if (!facts.capturing) facts.graph = nullptr;
    return ok();
}

// 0: the driver does not tell.
uint64_t id_of(const Driver& driver, CUstream stream) {
    unsigned long long id = 0;
    return driver.StreamGetId != nullptr && driver.StreamGetId(stream, &id) == CUDA_SUCCESS ? id : 0;
}

}  // namespace

Result<StreamFacts> describe_stream(const Driver& driver, CUstream stream) {
    StreamFacts facts;
    const CUresult found = driver.StreamGetCtx(stream, &facts.context);
    if (found == CUDA_ERROR_INVALID_HANDLE || found == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return fail(error::argument_stream, "{} is no CUDA stream: was the stream, or its context, destroyed?",
                    static_cast<const void*>(stream));
    WEFT_TRY(driver.check(found, "query a stream's context"));
    {
        ContextScope scope(driver, facts.context);
        WEFT_TRY(scope.take_status());
        CUdevice device = 0;
        WEFT_TRY(driver.check(driver.CtxGetDevice(&device), "query a stream's device"));
        facts.device = device;
    }
    WEFT_TRY(describe_capture(driver, stream, facts));
    const uint64_t id = id_of(driver, stream);
    facts.id = id != 0 ? id : reinterpret_cast<uintptr_t>(stream);
    return facts;
}

Result<StreamFacts> KnownStreams::describe(const Driver& driver, CUstream stream) {
    // No other stream of the process ever has this id.
    const uint64_t id = id_of(driver, stream);
    StreamFacts& known = known_[id % known_.size()];
    if (id != 0 && known.id == id) [[likely]] {
        StreamFacts facts = known;
        WEFT_TRY(describe_capture(driver, stream, facts));
        return facts;
    }
    auto facts = describe_stream(driver, stream);
    if (facts && id != 0) known = *facts;
    return facts;
}

RelaxedCapture::RelaxedCapture(const Driver& driver)
    : driver_(driver), exchanged_(driver.ThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS) {}

RelaxedCapture::~RelaxedCapture() {
    if (exchanged_) driver_.ThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace weft::internal::cuda
