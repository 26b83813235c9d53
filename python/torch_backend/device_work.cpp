#include "device_work.hpp"

#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/env.h>

#include <thread>

#include "capture.hpp"
#include "failure.hpp"
#include "hooks.hpp"
#include "python_caller.hpp"

namespace weft_torch {

weftStream_t native(const c10::Stream& stream) {
    void* handle = c10::impl::VirtualGuardImpl(stream.device_type()).getStreamNativeHandle(stream);
    // torch's default stream is the legacy stream. To Weft, null can mean a call on host memory: CU_STREAM_LEGACY does not.
    return reinterpret_cast<weftStream_t>(handle ? handle : reinterpret_cast<void*>(1));
}

c10::Stream current_stream(const c10::Device& device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

DeviceWork::DeviceWork(Operation operation, std::vector<at::Tensor> kept, std::shared_ptr<Communicator> communicator)
    : Work(operation.rank, operation.type),
      operation_(std::move(operation)),
      key_(next_key()),
      kept_(std::move(kept)),
      communicator_(std::move(communicator)) {}

// No stream of the caller's waits for the operation. Its allocator must not give the memory away before that ends.
DeviceWork::~DeviceWork() {
    if (!stream_) return;
    const c10::impl::VirtualGuardImpl device(stream_->device_type());
    for (const at::Tensor& tensor : kept_) {
        try {
            if (tensor.has_storage()) device.recordDataPtrOnStream(tensor.storage().data_ptr(), *stream_);
        } catch (const std::exception&) {  // memory that torch's allocator does not own
        }
    }
}

void DeviceWork::enqueue(const c10::Stream& stream, bool timed, const std::function<void()>& calls) {
    RECORD_FUNCTION(operation_.title, std::vector<c10::IValue>{});
    const auto flag = timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT;
    const auto type = stream.device_type();
    stream_ = stream;
    if (timed) {
        begin_ = std::make_shared<c10::Event>(type, flag);
        begin_->record(stream);
    }
    calls();
    auto end = std::make_shared<c10::Event>(type, flag);
    end->record(stream);
    captured_ = is_capturing(stream);
    end_ = std::move(end);
}

bool DeviceWork::has_ended() const {
    if (launch_ && !launch_->isCompleted()) return false;
    if ((launch_ && launch_->exception()) || communicator_->failure()) return true;
    return captured_ || end_->query();
}

bool DeviceWork::isCompleted() { return has_ended(); }
bool DeviceWork::isSuccess() const { return has_ended() && !exception(); }

std::exception_ptr DeviceWork::exception() const {
    if (launch_) {
        if (!launch_->isCompleted()) return nullptr;
        if (auto failure = launch_->exception()) return failure;
    }
    return communicator_->failure();
}

void DeviceWork::follow(std::chrono::milliseconds timeout) {
    if (launch_) launch_->wait(timeout);
    if (auto failure = communicator_->failure()) std::rethrow_exception(failure);
    end_->block(current_stream(stream_->device()));
    std::vector<at::Tensor> kept;  // freed without the lock
    std::lock_guard lock(mutex_);
    kept.swap(kept_);
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
    const bool given = timeout != kNoTimeout && timeout.count() > 0;
    const auto until = std::chrono::steady_clock::now() + timeout;
    follow(timeout);
    static const bool blocks = c10::utils::check_env("TORCH_NCCL_BLOCKING_WAIT").value_or(false);
    if (!given && !operation_.blocks_host && !blocks) return true;
    auto pause = std::chrono::microseconds(10);
    const WithoutGil no_gil;
    while (!has_ended()) {
        if (given && std::chrono::steady_clock::now() > until)
            throw_failure(wait_timeout_text(operation_.type, timeout));
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
    if (auto failure = communicator_->failure()) std::rethrow_exception(failure);
    return true;
}

// A future records events of the current streams, which its users' streams wait for.
void DeviceWork::complete(const c10::intrusive_ptr<c10::ivalue::Future>& future) const {
    if (auto failure = exception()) {
        future->setErrorIfNeeded(failure);
        return;
    }
    const c10::StreamGuard on(*stream_);
    future->markCompleted(c10::IValue(operation_.outputs));
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
    std::unique_lock lock(mutex_);
    if (future_) return future_;
    std::vector<c10::Device> devices;
    for (const at::Tensor& tensor : operation_.outputs)
        if (devices.empty() && !tensor.device().is_cpu()) devices.push_back(tensor.device());
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
    auto future = future_;
    lock.unlock();
    if (launch_ && !launch_->isCompleted())
        launch_->getFuture()->addCallback(
            [self = DeviceWorkPtr::reclaim_copy(this), future](c10::ivalue::Future&) { self->complete(future); });
    else
        complete(future);
    return future;
}

float DeviceWork::getDuration() const {
    TORCH_CHECK(begin_, "the duration of an operation on a device is known after _enable_collectives_timing()");
    TORCH_CHECK(has_ended(), "the duration of an operation is known when it is complete");
    return float(begin_->elapsedTime(*end_));
}

}  // namespace weft_torch
