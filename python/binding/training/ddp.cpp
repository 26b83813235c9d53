#include "python/binding/training/ddp.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "python/binding/bindings.hpp"
#include "python/binding/collector.hpp"
#include "python/binding/group.hpp"
#include "python/binding/memory_view.hpp"
#include "python/binding/stream.hpp"
#include "python/binding/training/bucket.hpp"
#include "python/binding/training/compressor.hpp"

namespace weft::python {

namespace {

// Keeps the Ddp during its hook. The last reference dies in the main thread, because a hook cannot end its Ddp.
class KeptInHook {
  public:
    explicit KeptInHook(PyObject* self) : self_(self) { Py_INCREF(self); }
    KeptInHook(const KeptInHook&) = delete;
    ~KeptInHook() {
        // A full queue of calls keeps it forever.
        if (Py_REFCNT(self_) == 1)
            (void)Py_AddPendingCall(let_go, self_);
        else
            Py_DECREF(self_);
    }

  private:
    static int let_go(void* self) {
        Py_DECREF(static_cast<PyObject*>(self));
        return 0;
    }
    PyObject* self_;
};

// One entry of the list of parameters or buffers. The name stays valid with its tuple. The last array is that of `data`.
weftTrainTensor_t tensor_of(nb::handle entry, bool has_gradient, std::vector<Array>& arrays) {
    const auto parts = nb::cast<nb::tuple>(entry);
    weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
    tensor.name = PyUnicode_AsUTF8(parts[0].ptr());
    if (!tensor.name) throw nb::python_error();
    Array data(without_autograd(parts[1]), tensor.name, Access::write);
    tensor.data = data.data();
    tensor.count = data.count();
    tensor.datatype = data.type();
    if (has_gradient && !parts[2].is_none()) {
        const std::string name = std::string("the gradient of ") + tensor.name;
        Array gradient(without_autograd(parts[2]), name.c_str(), Access::write);
        check_alike(data, tensor.name, gradient, name.c_str());
        check_count(gradient, name.c_str(), data.count(), "as many as its parameter");
        tensor.gradient = gradient.data();
        arrays.push_back(std::move(gradient));
    }
    if (has_gradient) tensor.rows = nb::cast<size_t>(parts[3]);
    arrays.push_back(std::move(data));
    return tensor;
}

weftTrainDdpConfig_t config_of(const nb::dict& settings) {
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    config.bucketCapBytes = nb::cast<size_t>(settings["bucket_cap_bytes"]);
    config.divisor = nb::cast<bool>(settings["divide_by_active"]) ? weftTrainDivideByActive : weftTrainDivideByRanks;
    config.findUnused = nb::cast<bool>(settings["find_unused"]) ? 1 : 0;
    config.staticGraph = nb::cast<bool>(settings["static_graph"]) ? 1 : 0;
    config.broadcastBuffers = nb::cast<bool>(settings["broadcast_buffers"]) ? 1 : 0;
    config.join = nb::cast<bool>(settings["join"]) ? 1 : 0;
    return config;
}

}  // namespace

Ddp::Ddp(nb::object comm, const nb::list& parameters, const nb::list& buffers, nb::object hook,
         const nb::dict& settings, const nb::object& refused)
    : comm_(std::move(comm)), process_(getpid()) {
    std::vector<weftTrainTensor_t> tensors[2];
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    Comm& own = nb::cast<Comm&>(comm_);
    weftTrainDdp_t made = nullptr;
    try {
        if (!refused.is_none()) raise(refused);
        for (nb::handle entry : parameters) {
            tensors[0].push_back(tensor_of(entry, true, arrays_));
            const Array& data = arrays_.back();
            parameters_.push_back({data.bytes(), data.device(), data.type()});
            on_device_ |= data.on_device() && data.count() > 0;
        }
        for (nb::handle entry : buffers) tensors[1].push_back(tensor_of(entry, false, arrays_));
        config = config_of(settings);
        set_hook(hook, config);
    } catch (...) {
        // The other ranks wait for this one: they get an error as well.
        own.run([&](weftComm_t handle) {
            (void)weftTrainDdpCreate(&made, handle, nullptr, 0, nullptr, 0, nullptr);
            return weftSuccess;
        });
        throw;
    }
    own.run([&](weftComm_t handle) {
        return weftTrainDdpCreate(&made, handle, tensors[0].data(), tensors[0].size(), tensors[1].data(),
                                  tensors[1].size(), &config);
    });
    handle_.store(made);
}

Ddp::~Ddp() { destroy(); }

void Ddp::set_hook(const nb::object& hook, weftTrainDdpConfig_t& config) {
    if (hook.is_none()) return;
    if (nb::isinstance<Compressor>(hook)) {
        hook_ = hook;
        config.hook = weftTrainHookCompress;
        config.hookContext = nb::cast<Compressor&>(hook).handle();
        return;
    }
    std::string name;
    if (!nb::try_cast(hook, name)) {
        hook_ = hook;
        config.hook = call_hook;
        config.hookContext = this;
    } else if (name == "float16") {
        config.hook = weftTrainHookFloat16;
    } else if (name == "bfloat16") {
        config.hook = weftTrainHookBfloat16;
    } else {
        refuse("python.value", "hook is " + name + "; it must be float16, bfloat16, None, a Compressor or a function");
    }
}

weftResult_t Ddp::call_hook(const weftTrainBucket_t* bucket, void* context) {
    Ddp& ddp = *static_cast<Ddp*>(context);
    const Locked gil;
    if (!gil || ddp.dying_ || Py_REFCNT(ddp.self_) == 0) return weftInternalError;
    KeptInHook self(ddp.self_);
    try {
        const nb::object seen = nb::cast(new Bucket(bucket, nb::borrow(ddp.self_)), nb::rv_policy::take_ownership);
        weftResult_t result = weftSuccess;
        try {
            ddp.hook_(seen);
        } catch (nb::python_error& error) {
            ddp.cause_ = nb::borrow(error.value());
            result = weftInvalidUsage;
        }
        if (!nb::cast<Bucket&>(seen).end() && result == weftSuccess) {
            PyErr_SetString(PyExc_RuntimeError, "the hook keeps an array over scratch memory: delete it in the hook");
            throw nb::python_error();
        }
        return result;
    } catch (nb::python_error& error) {
        ddp.cause_ = nb::borrow(error.value());
        return weftInvalidUsage;
    }
}

weftTrainDdp_t Ddp::handle() const {
    const weftTrainDdp_t handle = handle_.load(std::memory_order_relaxed);
    if (!handle) refuse_usage("python.closed", "the Ddp is closed or was aborted. Make a new one by weft.train.Ddp()");
    return handle;
}

template <class Body>
void Ddp::run(Body&& body) {
    Interruptible* const objects[] = {this};
    check_result(without_gil(objects, [&, ddp = handle()] { return body(ddp); }));
}

void Ddp::check_result(weftResult_t result) {
    if (result == weftSuccess) return;
    const Failure failure = Failure::newest(result);
    const nb::object cause = std::exchange(cause_, nb::object());
    // KeyboardInterrupt and SystemExit end programs: they stay as they are.
    if (cause.is_valid() && PyObject_IsInstance(cause.ptr(), PyExc_Exception) == 0) raise(cause);
    raise(failure, !strcmp(failure.info.id, "train.hook") ? cause : nb::object());
}

template <class Body>
void Ddp::report(Body&& body) {
    if (on_device_) return run(body);
    check_result(unlocked([&, ddp = handle()] { return body(ddp); }));
}

void Ddp::begin(bool accumulate, nb::handle stream) {
    self_ = nb::find(this).ptr();
    const StreamArgument on(stream);
    run([&](weftTrainDdp_t ddp) {
        return weftTrainDdpBegin(ddp, accumulate ? weftTrainAccumulate : weftTrainSynchronize, on.handle);
    });
}

void Ddp::ready(int parameter, nb::handle stream) {
    const StreamArgument on(stream);
    report([&](weftTrainDdp_t ddp) { return weftTrainDdpGradientReady(ddp, parameter, on.handle); });
}

void Ddp::ready_all(const std::vector<int>& parameters, nb::handle stream) {
    const StreamArgument on(stream);
    report([&](weftTrainDdp_t ddp) {
        return weftTrainDdpGradientsReady(ddp, parameters.data(), parameters.size(), on.handle);
    });
}

void Ddp::finish(nb::handle stream) {
    const StreamArgument on(stream);
    run([&](weftTrainDdp_t ddp) { return weftTrainDdpFinish(ddp, on.handle); });
}

void Ddp::join(nb::handle stream) {
    const StreamArgument on(stream);
    run([&](weftTrainDdp_t ddp) { return weftTrainDdpJoin(ddp, on.handle); });
}

bool Ddp::reduced() {
    int reduced = 0;
    check(weftTrainDdpGetReduced(handle(), &reduced));
    return reduced != 0;
}

bool Ddp::used(int parameter) {
    int used = 0;
    check(weftTrainDdpGetUsed(handle(), parameter, &used));
    return used != 0;
}

int Ddp::bucket(int parameter) {
    int bucket = 0;
    check(weftTrainDdpGetBucket(handle(), parameter, &bucket));
    return bucket;
}

int Ddp::bucket_count() {
    int count = 0;
    check(weftTrainDdpGetCounts(handle(), nullptr, &count));
    return count;
}

void Ddp::zero_gradients(nb::handle stream) {
    const StreamArgument on(stream);
    check(unlocked([&, ddp = handle()] { return weftTrainDdpZeroGradients(ddp, on.handle); }));
}

nb::object Ddp::gradient(const nb::object& self, int parameter) {
    Ddp& own = nb::cast<Ddp&>(self);
    void* memory = nullptr;
    check(weftTrainDdpGetGradient(own.handle(), parameter, &memory));
    const size_t bytes = own.parameters_[size_t(parameter)].bytes;
    return own.on_device_ ? MemoryView<Ddp, true>::make(self, memory, bytes)
                          : MemoryView<Ddp>::make(self, memory, bytes);
}

nb::list Ddp::facts() const {
    nb::list all;
    for (const Facts& each : parameters_) all.append(nb::make_tuple(each.device, name_of(each.type)));
    return all;
}

nb::object Ddp::async_error() {
    weftResult_t state = weftSuccess;
    check(weftTrainDdpGetAsyncError(handle(), &state));
    return state == weftSuccess ? nb::none() : exception_of(Failure::newest(state), nb::handle());
}

void Ddp::abort() {
    check(unlocked([ddp = handle()] { return weftTrainDdpAbort(ddp); }));
}

void Ddp::abort_quietly() noexcept {
    if (const weftTrainDdp_t ddp = handle_.load()) (void)weftTrainDdpAbort(ddp);
}

void Ddp::close() {
    if (!handle_.load()) return;
    if (views_ > 0) refuse_usage("python.closed", "arrays over the gradients of the Ddp exist. Delete them first");
    if (process_ != getpid()) {
        handle_.store(nullptr);
        return;
    }
    run([](weftTrainDdp_t ddp) { return weftTrainDdpDestroy(ddp); });
    handle_.store(nullptr);
    arrays_.clear();
}

void Ddp::destroy() noexcept {
    dying_ = true;
    const weftTrainDdp_t ddp = handle_.exchange(nullptr);
    if (!ddp || process_ != getpid()) return;
    // A hook in progress may need the GIL.
    const Frame frame;
    const Unlocked unlocked;
    (void)weftTrainDdpDestroy(ddp);
}

int Ddp::visit(visitproc visit, void* arg) const {
    Py_VISIT(comm_.ptr());
    Py_VISIT(hook_.ptr());
    Py_VISIT(cause_.ptr());
    for (const Array& array : arrays_)
        if (const int stop = array.visit(visit, arg)) return stop;
    return 0;
}

void bind_training(nb::module_& module) {
    MemoryView<Ddp>::bind(module, "TrainMemory");
    MemoryView<Ddp, true>::bind(module, "TrainDeviceMemory");
    bind_bucket(module);
    nb::class_<Ddp>(module, "Ddp", nb::type_slots(collected<Ddp>()), nb::is_weak_referenceable())
        .def(nb::init<nb::object, const nb::list&, const nb::list&, nb::object, const nb::dict&, const nb::object&>(),
             nb::arg("comm"), nb::arg("parameters"), nb::arg("buffers"), nb::arg("hook").none(), nb::arg("settings"),
             nb::arg("refused").none(), InFrame())
        .def("_begin", &Ddp::begin, nb::arg("accumulate"), nb::arg("stream").none(), InFrame())
        .def("_ready", &Ddp::ready, nb::arg("parameter"), nb::arg("stream").none(), InFrame())
        .def("_ready_all", &Ddp::ready_all, nb::arg("parameters"), nb::arg("stream").none(), InFrame())
        .def("_finish", &Ddp::finish, nb::arg("stream").none(), InFrame())
        .def("_join", &Ddp::join, nb::arg("stream").none(), InFrame())
        .def("_reduced", &Ddp::reduced, InFrame())
        .def("_used", &Ddp::used, InFrame())
        .def("_bucket", &Ddp::bucket, InFrame())
        .def("_bucket_count", &Ddp::bucket_count, InFrame())
        .def("_zero_gradients", &Ddp::zero_gradients, nb::arg("stream").none(), InFrame())
        .def("_gradient", &Ddp::gradient)
        .def("_facts", &Ddp::facts)
        .def("_async_error", &Ddp::async_error, InFrame())
        .def("_abort", &Ddp::abort, InFrame())
        .def(
            "_give_up",
            [](Ddp& ddp) {
                const Unlocked gil_is_free;
                ddp.abort_quietly();
            },
            InFrame())
        .def("_close", &Ddp::close, InFrame());
}

}  // namespace weft::python
