#include "device_group.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "capture.hpp"
#include "failure.hpp"
#include "tensors.hpp"

namespace weft_torch {

namespace {

// Messages that no rank waits for must not keep a group that ends.
constexpr std::chrono::milliseconds patience{500};

// Of the operations that hooks and ends ask for, errors of the device count as the end.
bool has_passed(const c10::Event& event) noexcept {
    try {
        const RelaxedCapture relaxed;
        return event.query();
    } catch (...) {
        return true;
    }
}

// Lets `stream` wait for what the current stream has to do now.
void follow_current(const c10::Stream& stream) {
    c10::Event ready(stream.device_type());
    ready.record(current_stream(stream.device()));
    ready.block(stream);
}

std::vector<at::Tensor> joined(std::vector<at::Tensor> first, const std::vector<at::Tensor>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

}  // namespace

c10::Device device_of(const char* call, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
    std::optional<c10::Device> found;
    for (const auto* list : {&inputs, &outputs})
        for (const at::Tensor& tensor : *list) {
            if (!tensor.defined()) continue;
            if (found && *found != tensor.device())
                throw_argument(c10::str(call, ": one tensor is on ", *found, " and another on ", tensor.device(),
                                        "; move them to one device [memory.kind]"));
            found = tensor.device();
        }
    return found.value_or(c10::Device(c10::kCPU));
}

Call message_call(const at::Tensor& tensor, int peer, bool sends) {
    const weftDataType_t datatype = moved(tensor.scalar_type()).datatype;
    if (sends) {
        auto source = std::make_shared<at::Tensor>();
        return {[=](weftComm_t comm, weftStream_t stream) {
            *source = dense(tensor);
            check(weftSend(source->const_data_ptr(), weft_count(tensor), datatype, peer, comm, stream), comm);
        }};
    }
    auto target = std::make_shared<std::optional<Output>>();
    return {[=](weftComm_t comm, weftStream_t stream) {
                target->emplace(tensor);
                check(weftRecv((*target)->data(), weft_count(tensor), datatype, peer, comm, stream), comm);
            },
            [target](weftComm_t) { (*target)->write(); }};
}

c10::Device with_index(const c10::Device& device) {
    return device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

at::Tensor allocate_on_device(int64_t size, size_t bytes, const at::TensorOptions& options) {
    const c10::Device device = options.device();
    const c10::DeviceGuard here(device);
    // Makes the device's context current in this thread, which Weft looks for.
    c10::Event(device.type()).record(current_stream(device));
    void* memory = nullptr;
    check(weftMemAlloc(&memory, std::max<size_t>(bytes, 1)));
    const auto free = [device](void* freed) {
        const c10::DeviceGuard here(device);
        if (is_capturing(current_stream(device))) return;  // the graph uses it
        try {
            c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
            (void)weftMemFree(freed);
        } catch (const std::exception&) {  // the device is broken, and keeps the memory
        }
    };
    return at::from_blob(memory, {size}, free, options, device);
}

DeviceGroup::DeviceGroup(c10::Device device, c10::intrusive_ptr<c10d::Store> store,
                         std::shared_ptr<DeviceNumbers> numbers, int rank, int size, DeviceSettings settings,
                         std::shared_ptr<const Hooks> hooks)
    : device_(device),
      store_(std::move(store)),
      numbers_(std::move(numbers)),
      rank_(rank),
      size_(size),
      settings_(std::move(settings)),
      hooks_(std::move(hooks)) {}

// Counts a thread that is in a scope.
struct Entered {
    explicit Entered(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Entered() { --count_; }
    std::atomic<int>& count_;
};

std::shared_ptr<Communicator> DeviceGroup::communicator(std::chrono::milliseconds timeout) {
    const Entered here(entered_);
    try {
        std::lock_guard order(order_);
        return made_communicator(timeout);
    } catch (...) {
        report_failure(std::current_exception());
        throw;
    }
}

std::shared_ptr<Communicator> DeviceGroup::made_communicator(std::chrono::milliseconds timeout) {
    if (aborted_) std::rethrow_exception(ended_failure());
    if (made_) return made_;
    const c10::DeviceGuard here(device_);
    if (!stream_) stream_.emplace(device_, settings_.high_priority);
    int number = 0;
    {
        std::lock_guard lock(numbers_->mutex);
        number = numbers_->communicators++;
    }
    std::shared_ptr<Communicator> made = Communicator::join(*store_, c10::str("weft/device/", number), rank_, size_,
                                                            timeout, settings_.communicator, &aborted_);
    made->check_device(device_);
    std::lock_guard lock(mutex_);
    if (aborted_) std::rethrow_exception(ended_failure());
    return made_ = std::move(made);
}

bool DeviceGroup::is_made() {
    std::lock_guard lock(mutex_);
    return made_ != nullptr;
}

void DeviceGroup::report_failure(const std::exception_ptr& failure) {
    report_ended();
    hooks_->failed(failure);
    // The exception tells it to the caller.
    std::lock_guard lock(mutex_);
    if (made_) (void)made_->failure();
}

DeviceWorkPtr DeviceGroup::run(Operation operation, const std::vector<at::Tensor>& inputs,
                               const std::vector<Call>& calls, bool async) {
    const Entered here(entered_);
    report_ended();
    try {
        std::lock_guard order(order_);
        return enqueue(operation, inputs, calls, async);
    } catch (...) {
        report_failure(std::current_exception());
        throw;
    }
}

DeviceWorkPtr DeviceGroup::enqueue(Operation& operation, const std::vector<at::Tensor>& inputs,
                                   const std::vector<Call>& calls, bool async) {
    const auto communicator = made_communicator(operation.timeout);
    std::vector<at::Tensor> kept;
    if (async) {
        kept = joined(inputs, operation.outputs);
        for (const Call& call : calls) kept = joined(std::move(kept), call.also_read);
        follow_current(stream_->get());
    }
    const c10::Stream stream = async ? stream_->get() : current_stream(device_);
    auto work = c10::make_intrusive<DeviceWork>(operation, std::move(kept), communicator);
    const c10::StreamGuard on(stream);
    work->enqueue(stream, timed_, [&] { execute(calls, *communicator, operation.timeout, native(stream)); });
    if (work->is_captured()) return work;
    note(operation, *work);
    std::lock_guard lock(mutex_);
    last_ = work->end();
    return work;
}

std::shared_ptr<DeviceGroup::Channel> DeviceGroup::channel(int peer, bool sends) {
    std::lock_guard lock(mutex_);
    if (aborted_) std::rethrow_exception(ended_failure());
    auto& found = channels_[{peer, sends}];
    if (!found) {
        int number = 0;
        {
            std::lock_guard counting(numbers_->mutex);
            number = numbers_->channels[{peer, sends}]++;
        }
        Settings settings = settings_.communicator;
        const int source = sends ? rank_ : peer, destination = sends ? peer : rank_;
        settings.name += c10::str(" messages ", source, " to ", destination);
        auto store = c10::make_intrusive<c10d::PrefixStore>(c10::str("weft/device messages/", number), store_);
        found = std::make_shared<Channel>(
            std::make_unique<Connection>(std::move(store), source, destination, sends, std::move(settings)), device_,
            settings_.high_priority);
    }
    return found;
}

DeviceWorkPtr DeviceGroup::message(Operation operation, const at::Tensor& tensor, int peer, bool sends) {
    const Entered here(entered_);
    report_ended();
    try {
        return enqueue_message(operation, tensor, peer, sends);
    } catch (...) {
        report_failure(std::current_exception());
        throw;
    }
}

DeviceWorkPtr DeviceGroup::enqueue_message(const Operation& operation, const at::Tensor& tensor, int peer, bool sends) {
    const c10::DeviceGuard here(device_);
    const auto way = channel(peer, sends);
    auto ready = std::make_shared<c10::Event>(device_.type());
    ready->record(current_stream(device_));
    auto work = c10::make_intrusive<DeviceWork>(operation, std::vector<at::Tensor>{tensor}, nullptr);
    if (!sends) work->set_source(peer);
    const Call call = message_call(tensor, sends ? 1 : 0, sends);
    const auto enqueue = [this, way, ready, work, call, operation] {
        const c10::Stream& stream = way->stream.get();
        const c10::StreamGuard on(stream);
        ready->block(stream);
        const auto communicator = way->connection->get(operation.timeout);
        work->runs_on(communicator);
        work->enqueue(stream, timed_, [&] { execute({call}, *communicator, operation.timeout, native(stream)); });
        if (work->is_captured()) return;
        note(operation, *work);
        std::lock_guard lock(mutex_);
        way->last.end = work->end();
    };
    // Only a first message waits for its peer, which another thread does.
    if (way->connection->is_made() && way->queue->run_alone(enqueue)) return work;
    auto job =
        c10::make_intrusive<HostWork>(rank_, operation.type, nullptr, std::vector<at::Tensor>{},
                                      std::vector<at::Tensor>{}, operation.sequence, operation.timeout, way->queue);
    if (hooks_->any()) job->report_failure_to(hooks_);
    work->launch(job);
    {
        std::lock_guard lock(mutex_);
        way->last = {job, nullptr};
    }
    way->queue->add(job, enqueue);
    return work;
}

void DeviceGroup::note(const Operation& operation, const DeviceWork& work) {
    if (!hooks_->any_of_success()) return;
    const auto now = std::chrono::steady_clock::now();
    std::lock_guard lock(mutex_);
    pending_.push_back(
        {{operation.type, operation.sequence, work.key(), now, now, true, {}, false}, work.begin(), work.end()});
}

void DeviceGroup::report_ended() {
    std::vector<Pending> ended;
    {
        std::lock_guard lock(mutex_);
        for (auto at = pending_.begin(); at != pending_.end();) {
            if (has_passed(*at->end)) {
                ended.push_back(std::move(*at));
                at = pending_.erase(at);
            } else {
                ++at;
            }
        }
    }
    if (ended.empty()) return;
    const bool failed = has_failed() || aborted_;
    for (Pending& each : ended) {
        each.operation.ended = std::chrono::steady_clock::now();
        each.operation.succeeded = !failed;
        try {
            if (each.begin && !failed) each.operation.ms = float(each.begin->elapsedTime(*each.end));
        } catch (const std::exception&) {  // an error of the device, which another kernel may have made
            each.operation.succeeded = false;
        }
        hooks_->ended(each.operation);
    }
}

void DeviceGroup::drain() {
    std::vector<std::shared_ptr<Channel>> channels;
    std::shared_ptr<c10::Event> last;
    {
        std::lock_guard lock(mutex_);
        last = last_;
        for (auto& [key, channel] : channels_) channels.push_back(channel);
    }
    if (last) last->synchronize();
    for (const auto& channel : channels) {
        channel->queue->drain();
        std::shared_ptr<c10::Event> end;
        {
            std::lock_guard lock(mutex_);
            end = channel->last.end;
        }
        if (end) end->synchronize();
    }
    report_ended();
}

weftResult_t DeviceGroup::error() {
    std::lock_guard lock(mutex_);
    if (aborted_) return weftSuccess;
    if (made_)
        if (const weftResult_t error = made_->error(); error != weftSuccess) return error;
    for (auto& [key, channel] : channels_)
        if (const weftResult_t error = channel->connection->error(); error != weftSuccess) return error;
    return weftSuccess;
}

void DeviceGroup::abort() {
    aborted_ = true;
    std::lock_guard lock(mutex_);
    if (made_) made_->abort();
    for (auto& [key, channel] : channels_) channel->connection->abort();
}

bool DeviceGroup::passes(const std::function<Last()>& last, std::chrono::steady_clock::time_point until) {
    const auto passed = [&] {
        const Last now = last();
        return (!now.job || now.job->isCompleted()) && (!now.end || has_passed(*now.end));
    };
    while (!passed()) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

bool DeviceGroup::becomes_idle() {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (entered_ > 0) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const auto last = [&] {
        std::lock_guard lock(mutex_);
        return Last{nullptr, last_};
    };
    return passes(last, until);
}

std::exception_ptr DeviceGroup::end() {
    decltype(channels_) channels;
    std::shared_ptr<Communicator> leaving;
    std::exception_ptr unknown;
    {
        std::lock_guard order(order_);
        std::lock_guard lock(mutex_);
        channels = channels_;
        leaving = made_;
    }
    const auto until = std::chrono::steady_clock::now() + patience;
    for (auto& [key, channel] : channels) {
        const auto last = [&] {
            std::lock_guard lock(mutex_);
            return channel->last;
        };
        if (!passes(last, until)) channel->connection->abort();
        channel->queue->end();
        if (auto failure = channel->connection->leave()) unknown = failure;
    }
    if (leaving) {
        leaving->leave();
        if (auto failure = leaving->unknown_failure()) unknown = failure;
    }
    report_ended();
    aborted_ = true;  // no call follows
    std::lock_guard lock(mutex_);
    channels_.clear();
    made_ = nullptr;
    return unknown;
}

}  // namespace weft_torch
