#include "device_group.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "failure.hpp"
#include "tensors.hpp"

namespace weft_torch {

namespace {

// Messages that no rank waits for must not keep a group that ends.
constexpr std::chrono::milliseconds patience{500};

// torch before 2.15 does not tell.
template <class Guard>
bool is_capturing(const Guard& guard, const c10::Stream& stream) {
    if constexpr (requires { guard.isStreamCapturing(stream); })
        return guard.isStreamCapturing(stream);
    else
        return false;
}

bool is_capturing(const c10::Device& device) {
    return is_capturing(c10::impl::VirtualGuardImpl(device.type()), current_stream(device));
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
        c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
        (void)weftMemFree(freed);
    };
    return at::from_blob(memory, {size}, free, options, device);
}

DeviceGroup::DeviceGroup(c10::Device device, c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                         DeviceSettings settings, std::shared_ptr<const Hooks> hooks)
    : device_(device),
      store_(std::move(store)),
      rank_(rank),
      size_(size),
      settings_(std::move(settings)),
      hooks_(std::move(hooks)) {}

c10::Stream DeviceGroup::new_stream() const {
    return c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_, settings_.high_priority);
}

std::shared_ptr<Communicator> DeviceGroup::communicator(std::chrono::milliseconds timeout) {
    std::lock_guard order(order_);
    if (aborted_) std::rethrow_exception(ended_failure());
    if (made_) return made_;
    const c10::DeviceGuard here(device_);
    if (!stream_) stream_ = new_stream();
    std::shared_ptr<Communicator> made =
        Communicator::join(*store_, "comm", rank_, size_, timeout, settings_.communicator, &aborted_);
    made->check_device(device_);
    std::lock_guard lock(mutex_);
    if (aborted_) std::rethrow_exception(ended_failure());
    return made_ = std::move(made);
}

bool DeviceGroup::is_made() {
    std::lock_guard lock(mutex_);
    return made_ != nullptr;
}

DeviceWorkPtr DeviceGroup::run(Operation operation, const std::vector<at::Tensor>& inputs,
                               const std::vector<Call>& calls, bool async) {
    auto communicator = this->communicator(operation.timeout);
    std::lock_guard order(order_);
    const bool capturing = is_capturing(device_);
    if (hooks_->any_of_success() && !capturing) report_ended();
    std::vector<at::Tensor> kept;
    if (async) {
        kept = joined(inputs, operation.outputs);
        for (const Call& call : calls) kept = joined(std::move(kept), call.also_read);
        follow_current(*stream_);
    }
    auto work = c10::make_intrusive<DeviceWork>(operation, std::move(kept), communicator);
    try {
        const c10::StreamGuard on(async ? *stream_ : current_stream(device_));
        const c10::Stream stream = on.current_stream();
        work->enqueue(stream, timed_, [&] { execute(calls, *communicator, operation.timeout, native(stream)); });
    } catch (...) {
        hooks_->failed(std::current_exception());
        throw;
    }
    last_ = work->end();
    if (hooks_->any_of_success() && !capturing) note(operation, *work);
    return work;
}

std::shared_ptr<DeviceGroup::Channel> DeviceGroup::channel(int peer, bool sends) {
    std::lock_guard lock(mutex_);
    if (aborted_) std::rethrow_exception(ended_failure());
    auto& found = channels_[{peer, sends}];
    if (!found) {
        Settings settings = settings_.communicator;
        const int source = sends ? rank_ : peer, destination = sends ? peer : rank_;
        settings.name += c10::str(" messages ", source, " to ", destination);
        found = std::make_shared<Channel>(
            std::make_unique<Connection>(store_, source, destination, sends, std::move(settings)), new_stream());
    }
    return found;
}

DeviceWorkPtr DeviceGroup::message(Operation operation, const at::Tensor& tensor, int peer, bool sends) {
    const c10::DeviceGuard here(device_);
    const auto way = channel(peer, sends);
    auto ready = std::make_shared<c10::Event>(device_.type());
    ready->record(current_stream(device_));
    auto work = c10::make_intrusive<DeviceWork>(operation, std::vector<at::Tensor>{tensor}, nullptr);
    if (!sends) work->set_source(peer);
    const Call call = message_call(tensor, sends ? 1 : 0, sends);
    const auto enqueue = [way, ready, work, call, timeout = operation.timeout] {
        const c10::StreamGuard on(way->stream);
        ready->block(way->stream);
        auto communicator = way->connection->get(timeout);
        work->runs_on(communicator);
        work->enqueue(way->stream, false, [&] { execute({call}, *communicator, timeout, native(way->stream)); });
    };
    try {
        // Only a first message waits for its peer, which another thread does.
        if (!way->connection->is_made() || !way->queue->run_alone(enqueue)) {
            auto job = c10::make_intrusive<HostWork>(rank_, operation.type, nullptr, std::vector<at::Tensor>{},
                                                     std::vector<at::Tensor>{}, operation.sequence, operation.timeout,
                                                     way->queue);
            work->launch(job);
            way->queue->add(job, enqueue);
        }
    } catch (...) {
        hooks_->failed(std::current_exception());
        throw;
    }
    std::lock_guard lock(mutex_);
    way->last = work;
    return work;
}

void DeviceGroup::note(const Operation& operation, const DeviceWork& work) {
    const auto now = std::chrono::steady_clock::now();
    std::lock_guard lock(mutex_);
    pending_.push_back({{operation.type, operation.sequence, work.key(), now, now, true}, work.end()});
}

void DeviceGroup::report_ended() {
    std::deque<Pending> ended;
    {
        std::lock_guard lock(mutex_);
        while (!pending_.empty() && pending_.front().end->query()) {
            ended.push_back(std::move(pending_.front()));
            pending_.pop_front();
        }
    }
    for (Pending& each : ended) {
        each.operation.ended = std::chrono::steady_clock::now();
        hooks_->ended(each.operation);
    }
}

void DeviceGroup::drain() {
    std::shared_ptr<c10::Event> last;
    {
        std::lock_guard order(order_);
        last = last_;
    }
    if (last) last->synchronize();
    report_ended();
}

weftResult_t DeviceGroup::error() {
    std::lock_guard lock(mutex_);
    if (aborted_) return weftSuccess;
    if (made_)
        if (const weftResult_t error = made_->error(); error != weftSuccess) return error;
    for (auto& [key, channel] : channels_)
        if (channel->connection->has_failed()) return weftRemoteError;
    return weftSuccess;
}

void DeviceGroup::abort() {
    aborted_ = true;
    std::lock_guard lock(mutex_);
    if (made_) made_->abort();
    for (auto& [key, channel] : channels_) channel->connection->abort();
}

bool DeviceGroup::becomes_idle() {
    std::lock_guard order(order_);
    const auto until = std::chrono::steady_clock::now() + patience;
    while (last_ && !last_->query()) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

void DeviceGroup::end() {
    decltype(channels_) channels;
    std::shared_ptr<Communicator> leaving;
    {
        std::lock_guard order(order_);
        std::lock_guard lock(mutex_);
        channels.swap(channels_);
        leaving.swap(made_);
        aborted_ = true;  // no call follows
    }
    const auto until = std::chrono::steady_clock::now() + patience;
    for (auto& [key, channel] : channels) {
        const auto on_its_way = [&] { return channel->last && !channel->last->isCompleted(); };
        while (on_its_way() && std::chrono::steady_clock::now() < until)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (on_its_way()) channel->connection->abort();
        channel->queue->end();
        channel->last.reset();
    }
    channels.clear();
    if (leaving) leaving->leave();
}

}  // namespace weft_torch
