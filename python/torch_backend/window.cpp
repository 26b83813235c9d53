#include "window.hpp"

#include "failure.hpp"
#include "tensors.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

namespace weft_torch {

Window::Window(c10::intrusive_ptr<Backend> backend, unsigned number)
    : backend_(std::move(backend)),
      signal_(int(number % WEFT_SIGNALS)),
      context_(int(number / WEFT_SIGNALS % WEFT_SIGNAL_CONTEXTS)) {}

// Ending a window is a call of all ranks, which a destructor cannot make. Weft's window lives as long as the communicator.
Window::~Window() {
    if (window_ && owning_) backend_->keep(std::move(tensor_));
}

weftWindow_t Window::registered(const char* call) const {
    if (!window_)
        throw_usage(
            c10::str(call, ": the window has no tensor; call tensor_register() on all ranks [argument.handle]"));
    return window_;
}

int Window::checked(const char* call, int64_t rank) const {
    if (rank < 0 || rank >= backend_->getSize())
        throw_argument(c10::str(call, ": the rank is ", rank, "; it must be a rank of the group, 0 to ",
                                backend_->getSize() - 1, " [argument.rank]"));
    return int(rank);
}

void Window::tensor_register(const at::Tensor& tensor, bool owning) {
    if (window_)
        throw_usage("tensor_register: the window has a tensor; call tensor_deregister() first [argument.handle]");
    check_tensor("tensor_register", "the tensor", tensor);
    if (!tensor.is_contiguous())
        throw_argument("tensor_register: the tensor is not contiguous; pass a contiguous one [argument.datatype]");
    weftWindow_t window = nullptr;
    const auto made = backend_->one_sided(
        tensor.device(), "weft:tensor_register", {tensor}, c10d::kUnsetTimeout, false,
        [&](weftComm_t comm, weftStream_t) {
            void* memory = tensor.nbytes() > 0 ? tensor.data_ptr() : nullptr;
            finish(weftCommWindowRegister(comm, memory, tensor.nbytes(), &window, WEFT_WIN_DEFAULT), comm);
        });
    made->wait(kNoTimeout);  // the call writes to this frame
    window_ = window;
    tensor_ = tensor;
    owning_ = owning;
}

void Window::tensor_deregister() {
    weftWindow_t window = registered("tensor_deregister");
    backend_
        ->one_sided(tensor_.device(), "weft:tensor_deregister", {}, c10d::kUnsetTimeout, false,
                    [=](weftComm_t comm, weftStream_t) { finish(weftCommWindowDeregister(comm, window), comm); })
        ->wait(kNoTimeout);
    window_ = nullptr;
    tensor_.reset();
}

WorkPtr Window::put(const at::Tensor& tensor, int64_t rank, int64_t offset, bool async,
                    const c10d::PutOptions& options) {
    weftWindow_t window = registered("put");
    const int target = checked("put", rank);
    check_tensor("put", "the tensor", tensor);
    if (tensor.scalar_type() != tensor_.scalar_type())
        throw_argument(c10::str("put: the tensor is of ", tensor.scalar_type(), " and the window's of ",
                                tensor_.scalar_type(), "; both need one type [argument.datatype]"));
    if (offset < 0) throw_argument(c10::str("put: the offset is ", offset, " elements [argument.value]"));
    device_of("put", {tensor_}, {tensor});
    return backend_->one_sided(
        tensor_.device(), "weft:put", {tensor}, options.timeout, async, [=](weftComm_t comm, weftStream_t stream) {
            const at::Tensor source = dense(tensor);
            const Elements elements = moved(source.scalar_type());
            check(weftPut(source.const_data_ptr(), size_t(source.numel()) * elements.per_element, elements.datatype,
                          target, window, size_t(offset) * source.element_size(), comm, stream),
                  comm);
        });
}

at::Tensor Window::map_remote_tensor(int64_t rank) {
    registered("map_remote_tensor");
    if (checked("map_remote_tensor", rank) == backend_->getRank()) return tensor_;
    throw_usage(c10::str("map_remote_tensor: Weft does not map the window of rank ", rank,
                         " into this process; use put, or all_gather [memory.kind]"));
}

WorkPtr Window::signal(int64_t rank, bool async, const c10d::SignalOptions& options) {
    registered("signal");
    const int target = checked("signal", rank);
    return backend_->one_sided(tensor_.device(), "weft:signal", {}, options.timeout, async,
                               [target, index = signal_, context = context_](weftComm_t comm, weftStream_t stream) {
                                   check(weftSignal(target, index, context, 0, comm, stream), comm);
                               });
}

WorkPtr Window::wait_signal(int64_t rank, bool async, const c10d::WaitSignalOptions& options) {
    registered("wait_signal");
    const weftWaitSignalDesc_t wanted{1, checked("wait_signal", rank), signal_, context_};
    return backend_->one_sided(
        tensor_.device(), "weft:wait_signal", {}, options.timeout, async,
        [wanted](weftComm_t comm, weftStream_t stream) { check(weftWaitSignal(1, &wanted, comm, stream), comm); });
}

c10d::WindowAttr Window::get_attr(int64_t rank) {
    checked("get_attr", rank);
    return {c10d::WindowAccessType::UNIFIED};
}

// ---- The methods of c10d::Backend ----

c10::intrusive_ptr<c10d::Window> Backend::new_window(const std::optional<at::Tensor>& tensor) {
    check_process();
    auto window = c10::make_intrusive<Window>(c10::intrusive_ptr<Backend>::reclaim_copy(this), windows_++);
    if (tensor) window->tensor_register(*tensor, true);
    return window;
}

WorkPtr Backend::one_sided(const c10::Device& device, const char* title, const Tensors& inputs, Milliseconds timeout,
                           bool async, std::function<void(weftComm_t, weftStream_t)> call) {
    check_process();
    refuse_estimate(title, device);
    if (!device.is_cpu())
        return run_on_device(device, {c10d::OpType::UNKNOWN, title}, inputs, {}, {{std::move(call)}}, chosen(timeout),
                             async, false);
    auto work = run({c10d::OpType::UNKNOWN, title}, inputs, {}, {{std::move(call)}}, chosen(timeout), async);
    // Programs wait for the result, unlike that of a synchronous collective.
    if (!work) work = c10::make_intrusive<DoneWork>(rank_, c10d::OpType::UNKNOWN, sequence_);
    return work;
}

void Backend::keep(at::Tensor tensor) {
    std::lock_guard lock(channels_mutex_);
    kept_.push_back(std::move(tensor));
}

}  // namespace weft_torch
#endif
