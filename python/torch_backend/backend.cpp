#include "backend.hpp"

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <map>
#include <thread>

#include "failure.hpp"
#include "failure_watch.hpp"
#include "python_caller.hpp"
#include "statistics.hpp"
#include "tensors.hpp"

namespace weft_torch {

namespace {

// All backends of this process. Never freed: threads may outlive static objects.
struct Registry {
    std::mutex mutex;
    std::map<Backend*, std::optional<c10::weak_intrusive_ptr<Backend>>> living;  // set by make()
};
Registry& registry() {
    static auto* const all = [] {
        // The watch may hold the mutex when another thread calls fork().
        pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                       [] { registry().mutex.unlock(); });
        return new Registry;
    }();
    return *all;
}

Settings settings_of(const GroupOptions& options, const std::string& suffix) {
    const std::string name =
        options.group_desc.empty() || options.group_desc == "undefined" ? options.group_name : options.group_desc;
    return {name.empty() ? suffix : name + suffix, options.algo, options.deterministic, WEFT_DEVICE_NONE};
}

// The members come by reconfigure().
bool waits_for_reconfigure([[maybe_unused]] const GroupOptions& options) {
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    return options.enable_reconfigure;
#else
    return false;
#endif
}

FailureWatch& watch() {
    static auto* const only = new FailureWatch(&Backend::look_for_failures);
    return *only;
}

// A child of fork() cannot end the threads and condition variables that its copy of the memory describes.
template <class T>
void leak(T&& owner) {
    new std::decay_t<T>(std::forward<T>(owner));
}

}  // namespace

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<GroupOptions> options)
    : Backend(store, rank, size, options,
              waits_for_reconfigure(*options)
                  ? nullptr
                  : Communicator::join(*store, "weft/comm", rank, size, options->timeout, settings_of(*options, ""))) {}

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
                 std::unique_ptr<Communicator> communicator)
    : c10d::Backend(rank, size),
      store_(std::move(store)),
      first_store_(store_),
      options_(std::move(options)),
      communicator_(std::move(communicator)) {
    init();
    std::lock_guard lock(registry().mutex);
    registry().living.emplace(this, std::nullopt);
}

Backend::~Backend() { release_resources(); }

// The registry's weak pointer delays the destructor; torch calls this instead when the last owner is gone.
void Backend::release_resources() {
    if (origin_.is_forked()) {
        leak(std::move(queue_));
        leak(std::move(senders_));
        leak(std::move(receivers_));
        leak(std::move(devices_));
        leak(std::move(communicator_));
        return;
    }
    {
        std::lock_guard lock(registry().mutex);
        registry().living.erase(this);
    }
    // Python may drop the last reference, and a callback of the group may wait for Python.
    const WithoutGil no_gil;
    shutdown_quietly();
}

void Backend::enter(const c10::intrusive_ptr<Backend>& made) {
    std::lock_guard lock(registry().mutex);
    registry().living[made.get()].emplace(made);
}

void shut_all_down() {
    watch().stop();
    std::vector<c10::intrusive_ptr<Backend>> living;
    {
        std::lock_guard lock(registry().mutex);
        for (auto& [backend, pointer] : registry().living) {
            if (backend->origin_.is_forked() || !pointer) continue;
            if (auto owned = pointer->lock()) living.push_back(std::move(owned));
        }
    }
    // Calls that other ranks do not complete would keep the process.
    for (const auto& backend : living) {
        bool idle = backend->queue_->is_idle();
        for (const auto& group : backend->device_groups()) idle &= group->becomes_idle();
        if (!idle) backend->abort();
    }
    for (const auto& backend : living) backend->shutdown_quietly();
}

void Backend::check_process() const {
    if (origin_.is_forked())
        throw_usage(
            "this process is a child of fork() and cannot use its parent's process group; start workers by the spawn "
            "method, or call init_process_group in the child [usage.forked]");
    if (!communicator_ && !shut_down_)
        throw_usage(
            "the process group has no communicator: it was made with enable_reconfigure, or reconfigure() failed; "
            "call reconfigure() on all ranks first [usage.not-ready]");
    if (ended_) throw_usage("the process group was destroyed, shut down or aborted; make a new one [usage.finalized]");
}

int Backend::checked_root(const char* call, int64_t root) const {
    if (root < 0 || root >= size_)
        throw_argument(c10::str(call, ": the root is ", root, "; it must be a rank of the group, 0 to ", size_ - 1,
                                " [argument.rank]"));
    return int(root);
}

int Backend::checked_peer(const char* call, int peer) const {
    if (peer < 0 || peer >= size_ || peer == rank_)
        throw_argument(c10::str(call, ": the peer is ", peer, "; it must be another rank of the group, 0 to ",
                                size_ - 1, ", and this is rank ", rank_,
                                ", which can send to itself only in a batch of messages on devices [argument.rank]"));
    return peer;
}

Milliseconds Backend::chosen(Milliseconds timeout) const {
    const Milliseconds base = timeout.count() < 0 ? options_->timeout : timeout;
    return timeout_ms(base) > 0 ? base + extension_->active() : base;  // not of a call without a limit
}

HostWorkPtr Backend::make_work(Title title, const Tensors& inputs, Tensors outputs, Milliseconds timeout,
                               std::weak_ptr<Driver> driver) {
    auto work = c10::make_intrusive<HostWork>(rank_, title.type, title.name, inputs, std::move(outputs), sequence_,
                                              timeout, std::move(driver));
    if (hooks_->any()) work->report_to(hooks_);
    return work;
}

void Backend::registerAbortHook(int64_t id, AbortHook hook) {
    hooks_->set_abort(id, std::move(hook));
    watch().start();
}

void Backend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
    onCompletionHook_ = hook;  // hasHooks() asks for it
    hooks_->set_end(std::move(hook));
}

void Backend::waitForPendingWorks() {
    // torch calls it at the end of a group, which may have been aborted.
    if (origin_.is_forked() || ended_) return;
    std::vector<std::shared_ptr<Driver>> drivers{queue_};
    {
        std::lock_guard lock(channels_mutex_);
        for (auto& [rank, sender] : senders_) drivers.push_back(sender->queue());
        for (auto& [rank, receiver] : receivers_) drivers.push_back(receiver);
    }
    for (const auto& driver : drivers) driver->drain();
    for (const auto& group : device_groups()) group->drain();
}

bool Backend::has_failed() {
    std::lock_guard lock(channels_mutex_);
    if (ended_ || !communicator_) return false;
    bool failed = communicator_->has_failed();
    for (auto& [rank, sender] : senders_) failed |= sender->has_failed();
    for (auto& [rank, receiver] : receivers_) failed |= receiver->has_failed();
    for (const auto& group : devices_) failed |= group->has_failed();
    return failed;
}

bool Backend::look_for_failures() {
    std::vector<std::shared_ptr<const Hooks>> failed;
    std::vector<std::shared_ptr<DeviceGroup>> devices;
    bool any = false;
    {
        std::lock_guard lock(registry().mutex);
        for (auto& [backend, pointer] : registry().living) {
            if (backend->origin_.is_forked()) continue;
            any = true;
            for (const auto& group : backend->device_groups()) devices.push_back(group);
            if (backend->failure_seen_ || !backend->has_failed()) continue;
            backend->failure_seen_ = true;
            failed.push_back(backend->hooks_);
        }
    }
    for (const auto& hooks : failed) hooks->failed();
    for (const auto& group : devices) group->report_ended();
    return any;
}

WorkPtr Backend::submit(Title title, const Tensors& inputs, Tensors outputs, std::vector<Call> calls,
                        Milliseconds timeout, bool async) {
    check_process();
    if (is_estimating()) {
        const c10::Device device = device_of(title.name, inputs, outputs);
        if (!device.is_cpu()) refuse_estimate(title.name, device);
        run_in_order([&](weftComm_t comm) { estimate_->us += predicted_us(title.name, inputs, outputs, size_, comm); });
        return c10::make_intrusive<DoneWork>(rank_, title.type, sequence_, std::move(outputs));
    }
    const Milliseconds limit = chosen(timeout);
    if (is_coalescing()) {
        auto& batch = *coalesced_;
        std::move(calls.begin(), calls.end(), std::back_inserter(batch.calls));
        batch.inputs.insert(batch.inputs.end(), inputs.begin(), inputs.end());
        batch.outputs.insert(batch.outputs.end(), outputs.begin(), outputs.end());
        batch.timeout = std::max(batch.timeout, limit);
        batch.has_collective |= title.type != c10d::OpType::SEND && title.type != c10d::OpType::RECV;
        return nullptr;
    }
    ++sequence_;
    return run_anywhere(title, inputs, std::move(outputs), std::move(calls), limit, async);
}

WorkPtr Backend::run_anywhere(Title title, const Tensors& inputs, Tensors outputs, std::vector<Call> calls,
                              Milliseconds limit, bool async) {
    const c10::Device device = device_of(title.name, inputs, outputs);
    if (!device.is_cpu()) return run_on_device(device, title, inputs, std::move(outputs), calls, limit, async, false);
    return run(title, inputs, std::move(outputs), std::move(calls), limit, async);
}

WorkPtr Backend::run(Title title, const Tensors& inputs, Tensors outputs, std::vector<Call> calls, Milliseconds limit,
                     bool async) {
    auto held = Extension::claim(extension_);
    if (!async) {
        RECORD_FUNCTION(title.name, std::vector<c10::IValue>{});
        const auto alone = [&] { return queue_->run_alone([&] { execute(calls, *communicator_, limit, nullptr); }); };
        if (hooks_->any_of_success()) {
            if (auto done = hooks_->observe(rank_, title.type, sequence_, outputs, alone)) return done;
        } else {
            try {
                if (alone()) return nullptr;
            } catch (...) {
                hooks_->failed(std::current_exception());
                throw;
            }
        }
    }
    auto work = make_work(title, inputs, std::move(outputs), limit, queue_);
    work->hold(std::move(held));
    queue_->add(work, [this, calls = std::move(calls), limit] { execute(calls, *communicator_, limit, nullptr); });
    return work;
}

// Calls of other threads are not part of the batch.
bool Backend::is_coalescing() const { return *coalescing_thread_ == std::this_thread::get_id(); }

// An ended group refuses the calls of the batch.
void Backend::startCoalescing() {
    if (is_coalescing())
        throw_usage(
            "startCoalescing: this thread has an open batch of this process group; end it by endCoalescing() first "
            "[group.not-preparable]");
    std::thread::id nobody;
    if (!coalescing_thread_->compare_exchange_strong(nobody, std::this_thread::get_id()))
        throw_usage("startCoalescing: another thread coalesces calls of this process group [usage.threads]");
    coalesced_ = std::make_shared<Coalesced>();
    watch_batch();
}

void Backend::watch_batch() {
    when_caller_is_gone([opened = std::weak_ptr(coalesced_), thread = coalescing_thread_, name = options_->group_name] {
        const auto batch = opened.lock();
        if (!batch || *thread != std::this_thread::get_id()) return;
        const size_t calls = batch->calls.size();
        *batch = {};
        *thread = std::thread::id();
        pybind11::module_::import("weft.torch").attr("_left_batch")(name, calls);
    });
}

WorkPtr Backend::endCoalescing() {
    if (!is_coalescing()) throw_usage("endCoalescing() without startCoalescing() [group.not-open]");
    Coalesced batch = std::move(*coalesced_);
    coalesced_.reset();
    *coalescing_thread_ = std::thread::id();
    std::vector<WorkPtr> parts = std::move(batch.messages);
    if (!batch.calls.empty()) {
        check_process();
        // Ranks that have no part in the messages count nothing.
        if (batch.has_collective) ++sequence_;
        parts.insert(parts.begin(), run_anywhere({c10d::OpType::COALESCED, "weft:coalesced"}, batch.inputs,
                                                 batch.outputs, std::move(batch.calls), batch.timeout, true));
    }
    if (parts.size() == 1) return parts[0];
    return c10::make_intrusive<JoinedWork>(rank_, std::move(parts));
}

Settings Backend::settings(const std::string& suffix) const { return settings_of(*options_, suffix); }

c10::intrusive_ptr<c10d::Store> Backend::own_store() const {
    if (!communicator_) std::rethrow_exception(ended_failure());
    return c10::make_intrusive<c10d::PrefixStore>(c10::str("weft/group ", communicator_->number()), store_);
}

std::unique_ptr<Connection> Backend::connection(int source, int destination, bool sends) {
    return std::make_unique<Connection>(own_store(), source, destination, sends,
                                        settings(c10::str(" messages ", source, " to ", destination)));
}

Sender& Backend::sender(int destination) {
    std::lock_guard lock(channels_mutex_);
    auto& found = senders_[destination];
    if (!found) found = std::make_unique<Sender>(connection(rank_, destination, true));
    return *found;
}

std::shared_ptr<Receiver> Backend::receiver(int source) {
    std::lock_guard lock(channels_mutex_);
    auto& found = receivers_[source];
    if (!found) found = std::make_shared<Receiver>(connection(source, rank_, false), receivers_progress_);
    return found;
}

WorkPtr Backend::finish_message(WorkPtr work) {
    if (is_coalescing()) coalesced_->messages.push_back(work);
    return work;
}

WorkPtr Backend::send(Tensors& tensors, int destination, int tag) {
    check_process();
    const at::Tensor tensor = only("send", "the tensor", tensors);
    refuse_estimate("send", tensor.device());
    if (!tensor.device().is_cpu()) return device_message("send", tensor, destination, true);
    Sender& to = sender(checked_peer("send", destination));
    const Milliseconds timeout = chosen(c10d::kUnsetTimeout);
    auto work = make_work({c10d::OpType::SEND, "weft:send"}, tensors, tensors, timeout, to.queue());
    work->hold(Extension::claim(extension_));
    to.queue()->add(work, [&to, tensor, tag, timeout] { to.send(tensor, tag, timeout); });
    return finish_message(std::move(work));
}

WorkPtr Backend::recv(Tensors& tensors, int source, int tag) {
    check_process();
    const at::Tensor& tensor = only("recv", "the tensor", tensors);
    refuse_estimate("recv", tensor.device());
    if (!tensor.device().is_cpu()) return device_message("recv", tensor, source, false);
    auto from = receiver(checked_peer("recv", source));
    auto receive = std::make_shared<Receive>();
    receive->timeout = chosen(c10d::kUnsetTimeout);
    receive->work = make_work({c10d::OpType::RECV, "weft:recv"}, tensors, tensors, receive->timeout, from);
    receive->work->limit_wait();
    receive->work->hold(Extension::claim(extension_));
    receive->tensor = tensor;
    receive->tag = tag;
    HostWorkPtr work = receive->work;
    from->add(receive);
    return finish_message(std::move(work));
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
    check_process();
    const at::Tensor& tensor = only("recv", "the tensor", tensors);
    check_host_tensor("recv of any source", "the tensor", tensor);
    refuse_estimate("recv of any source", tensor.device());
    if (size_ == 1)
        throw_argument("recv of any source: this group has no other rank that could send a message [argument.rank]");
    auto receive = std::make_shared<Receive>();
    receive->timeout = chosen(c10d::kUnsetTimeout);
    receive->work = make_work({c10d::OpType::RECVANYSOURCE, "weft:recv"}, tensors, tensors, receive->timeout, {});
    receive->work->limit_wait(receivers_progress_);
    receive->work->hold(Extension::claim(extension_));
    receive->tensor = tensor;
    receive->tag = tag;
    receive->any_source = true;
    receive->sources = size_ - 1;
    HostWorkPtr work = receive->work;
    for (int source = 0; source < size_; ++source)
        if (source != rank_ && !receive->taken) receiver(source)->add(receive);
    return finish_message(std::move(work));
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<c10d::Backend::Options>& options) try {
    check_process();
    const auto found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) return nullptr;
    // The store is the parent's connection, which a wait would block for other threads.
    return merge(store->clone(), options, int(found - ranks.begin()), int(ranks.size()));
} catch (...) {
    rethrow_for_store();
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const c10::intrusive_ptr<c10d::Backend::Options>& options,
                                                 const int& rank, const int& size) {
    auto chosen = c10::dynamic_intrusive_pointer_cast<GroupOptions>(options);
    if (!chosen) {
        chosen = c10::static_intrusive_pointer_cast<GroupOptions>(options_->clone());
        if (options) {
            chosen->timeout = options->timeout;
            chosen->group_name = options->group_name;
            chosen->group_desc = options->group_desc;
            chosen->global_ranks_in_group = options->global_ranks_in_group;
        }
    }
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    chosen->enable_reconfigure = false;  // the members are known
#endif
    return make(store, rank, size, std::move(chosen));
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                  const c10::intrusive_ptr<c10d::Backend::Options>& options) {
    check_process();
    std::vector<int> ranks(excluded.begin(), excluded.end());
    auto chosen = c10::dynamic_intrusive_pointer_cast<GroupOptions>(options);
    if (!chosen) chosen = c10::static_intrusive_pointer_cast<GroupOptions>(options_->clone());
    weftComm_t made = nullptr;
    uint64_t number = 0;
    run_in_order([&](weftComm_t parent) {
        number = communicator_->number();
        if (flags & WEFT_SHRINK_ABORT)
            for (const auto& group : device_groups()) group->abort();
        check(weftCommShrink(parent, ranks.data(), int(ranks.size()), &made, nullptr, flags), parent);
    });
    auto communicator = std::make_unique<Communicator>(made, number);
    int rank = 0, size = 0;
    check(weftCommUserRank(made, &rank));
    check(weftCommCount(made, &size));
    std::string suffix = c10::str("/", shrinks_++);
    for (const int each : ranks) suffix += c10::str("-", each);
    auto store = c10::make_intrusive<c10d::PrefixStore>("weft/shrunk" + suffix, store_);
    return make(std::move(store), rank, size, std::move(chosen), std::move(communicator));
}

void Backend::abort() {
    if (origin_.is_forked()) return;
    ended_ = true;
    hooks_->silence();
    std::lock_guard lock(channels_mutex_);
    if (communicator_) communicator_->abort();
    for (auto& [rank, sender] : senders_) sender->abort();
    for (auto& [rank, receiver] : receivers_) receiver->abort();
    for (const auto& group : devices_) group->abort();
}

// Collectives that were queued are executed: other ranks execute theirs. Messages that no rank waits for are dropped.
void Backend::shutdown() {
    if (origin_.is_forked()) return;
    if (is_coalescing() && !coalesced_->calls.empty())
        TORCH_WARN("weft: a process group ends with an open batch; ", coalesced_->calls.size(),
                   " collectives do not run");
    if (!ended_.exchange(true)) queue_->drain();
    shut_down_ = true;
    hooks_->silence();
    end_channels();
    queue_->end();
    const std::exception_ptr unknown = end_devices();
    {
        std::unique_ptr<Communicator> leaving;
        std::lock_guard lock(channels_mutex_);
        leaving.swap(communicator_);
    }
    if (unknown) std::rethrow_exception(unknown);
}

void Backend::shutdown_quietly() {
    try {
        shutdown();
    } catch (const std::exception& failure) {
        TORCH_WARN("weft: a process group has failed before its end, and no call reported it: ", failure.what());
    }
}

void Backend::end_channels() {
    std::map<int, std::unique_ptr<Sender>> senders;
    std::map<int, std::shared_ptr<Receiver>> receivers;
    {
        std::lock_guard lock(channels_mutex_);
        senders.swap(senders_);
        receivers.swap(receivers_);
    }
    // Messages that were sent stay for their receivers, which then see that this rank has left.
    for (auto& [rank, sender] : senders)
        if (!sender->queue()->is_idle()) sender->abort();
    // A receive of any source still waits for the other sources. Most of them end now, too.
    const auto until = std::chrono::steady_clock::now() + Milliseconds(500);
    for (auto& [rank, receiver] : receivers)
        if (!receiver->become_idle(until)) receiver->abort();
    senders.clear();
    for (auto& [rank, receiver] : receivers) receiver->end();
}

c10d::ErrorType Backend::getError() {
    if (origin_.is_forked()) return c10d::ErrorType::SUCCESS;
    std::lock_guard lock(channels_mutex_);
    if (ended_ || !communicator_) return c10d::ErrorType::SUCCESS;
    weftResult_t error = communicator_->error();
    for (const auto& group : devices_)
        if (error == weftSuccess) error = group->error();
    switch (error) {
        case weftSuccess: return c10d::ErrorType::SUCCESS;
        case weftTimeout: return c10d::ErrorType::TIMEOUT;
        case weftRemoteError: return c10d::ErrorType::REMOTE_ERROR;
        default: return c10d::ErrorType::COMM_ERROR;
    }
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
    if (size < 0) throw_argument(c10::str("allocateTensor: the size is ", size, " [argument.count]"));
    void* memory = nullptr;
    const size_t bytes = size_t(size) * options.dtype().itemsize();
    if (!options.device().is_cpu())
        return allocate_on_device(size, bytes, options.device(with_index(options.device())));
    check(weftHostAlloc(&memory, std::max<size_t>(bytes, 1)));
    return at::from_blob(
        memory, {size}, [](void* freed) { (void)weftMemFree(freed); }, options);
}

namespace {

std::string ranks_text(const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "Rank " : "Ranks ";
    for (size_t at = 0; at < ranks.size(); ++at) text += (at ? ", " : "") + std::to_string(ranks[at]);
    return text;
}

}  // namespace

// Through the store, so that a late rank does not end the communicator. The texts are those of Gloo, which programs look for.
void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) try {
    check_process();
    const Milliseconds timeout = chosen(options.timeout);
    const auto held = Extension::claim(extension_);
    const auto begun = std::chrono::steady_clock::now();
    // A later group may use the same store.
    const auto key_of = [&](uint64_t barrier) {
        return c10::str("weft/monitored/", communicator_->number(), "/", barrier, "/");
    };
    const uint64_t barrier = monitored_barriers_++;
    const std::string key = key_of(barrier);
    const auto left = [&] {
        return timeout - std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begun);
    };
    const auto late = [&] { return left().count() <= 0; };
    const auto arrives = [&](const std::string& what) {
        return late() ? store_->check({what}) : appears(*store_, what, left());
    };
    if (rank_ != 0) {
        store_->set(key + std::to_string(rank_), "1");
        std::string answer = c10::str("no answer in ", timeout.count(), " ms");
        if (arrives(key + "all")) {
            const std::vector<uint8_t> said = store_->get(key + "all");
            answer.assign(said.begin(), said.end());
            if (answer == "1") return;
        }
        throw_failure(c10::str("Rank ", rank_,
                               " successfully reached monitoredBarrier, but received errors while waiting "
                               "for send/recv from rank 0: ",
                               answer, " [timeout.collective]"));
    }
    std::vector<int> missing;
    std::string text;
    for (int rank = 1; rank < size_ && (missing.empty() || wait_all_ranks); ++rank) {
        if (late() && missing.empty() && !store_->check({key + std::to_string(rank)}))
            text = c10::str("Rank 0 timed out in monitoredBarrier after ", timeout.count(), " ms. ");
        if (!arrives(key + std::to_string(rank))) missing.push_back(rank);
    }
    if (!missing.empty())
        text += c10::str(ranks_text(missing), " failed to pass monitoredBarrier in ", timeout.count(),
                         " ms [timeout.collective]");
    const std::string answer = missing.empty() ? "1" : text;
    store_->set(key + "all", std::vector<uint8_t>(answer.begin(), answer.end()));
    if (!missing.empty()) throw_failure(text);
    for (int rank = 1; rank < size_; ++rank) forget(*store_, key + std::to_string(rank));
    // All ranks have read the answer before.
    if (barrier > 0) forget(*store_, key_of(barrier - 1) + "all");
} catch (...) {
    rethrow_for_store();
}

}  // namespace weft_torch
