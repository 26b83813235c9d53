#include "python/binding/training/optimizer.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <utility>

#include "python/binding/bindings.hpp"
#include "python/binding/collector.hpp"
#include "python/binding/memory_view.hpp"
#include "python/binding/stream.hpp"
#include "python/binding/training/compressor.hpp"
#include "python/binding/training/ddp.hpp"

namespace weft::python {

namespace {

// In any memory.
Array array_or_none(nb::handle object, const std::string& name, Access access) {
    if (object.is_none()) return {};
    return Array(without_autograd(object), name.c_str(), access);
}
Array host_array(nb::handle object, const std::string& name, Access access) {
    Array array = array_or_none(object, name, access);
    if (array.on_device()) refuse("python.device", name + " lies on a device. This call takes host memory");
    return array;
}

Array of_float(Array array, const std::string& name) {
    if (array.data() && array.type() != weftFloat32)
        refuse("python.dtype", name + " has dtype " + name_of(array.type()) + "; it must be float32");
    return array;
}
// For sums and statistics.
Array float_array(nb::handle object, const std::string& name, Access access) {
    return of_float(host_array(object, name, access), name);
}

weftTrainAlgorithm_t algorithm_named(const std::string& name) {
    const std::pair<const char*, weftTrainAlgorithm_t> known[] = {
        {"sgd", weftTrainSgd},   {"adam", weftTrainAdam}, {"adamw", weftTrainAdamW},
        {"lamb", weftTrainLamb}, {"lars", weftTrainLars}, {"onebit_lamb", weftTrainOneBitLamb}};
    for (const auto& [each, algorithm] : known)
        if (name == each) return algorithm;
    refuse("python.value", "algorithm is " + name + "; it must be sgd, adam, adamw, lamb, lars or onebit_lamb");
}

weftTrainOffloadEngine_t engine_named(const std::string& name) {
    if (name == "any") return weftTrainOffloadAny;
    if (name == "uring") return weftTrainOffloadUring;
    if (name == "threads") return weftTrainOffloadThreads;
    refuse("python.value", "offload_engine is " + name + "; it must be any, uring or threads");
}

weftTrainOptimizerConfig_t optimizer_config_of(const nb::dict& settings) {
    weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
    config.algorithm = algorithm_named(nb::cast<std::string>(settings["algorithm"]));
    config.momentum = nb::cast<double>(settings["momentum"]);
    config.dampening = nb::cast<double>(settings["dampening"]);
    config.nesterov = nb::cast<bool>(settings["nesterov"]) ? 1 : 0;
    config.beta1 = nb::cast<double>(settings["beta1"]);
    config.beta2 = nb::cast<double>(settings["beta2"]);
    config.epsilon = nb::cast<double>(settings["eps"]);
    config.weightDecay = nb::cast<double>(settings["weight_decay"]);
    config.trust = nb::cast<double>(settings["trust"]);
    config.biasCorrection = nb::cast<bool>(settings["bias_correction"]) ? 1 : 0;
    config.offloadValues = nb::cast<bool>(settings["offload_values"]) ? 1 : 0;
    config.offloadChunk = nb::cast<size_t>(settings["offload_chunk"]);
    config.offloadBuffers = nb::cast<int>(settings["offload_buffers"]);
    config.offloadEngine = engine_named(nb::cast<std::string>(settings["offload_engine"]));
    return config;
}

weftTrainBatchNorm_t layer_of(const Array& x, const std::vector<size_t>& shape, double eps) {
    weftTrainBatchNorm_t layer = WEFT_TRAIN_BATCH_NORM_INITIALIZER;
    layer.batch = shape[0];
    layer.channels = shape[1];
    layer.inner = shape[2];
    layer.datatype = x.type();
    layer.epsilon = eps;
    return layer;
}

// The count is given back, or written to an array of the device.
uint64_t batch_norm_forward(Comm& comm, nb::handle x, const std::vector<size_t>& shape, double eps, double momentum,
                            const nb::tuple& running, nb::handle mean, nb::handle invstd, nb::handle count,
                            nb::handle stream) {
    const StreamArgument on(stream);
    const Array input = array_or_none(x, "x", Access::read);
    weftTrainBatchNorm_t layer = layer_of(input, shape, eps);
    const Array kept[2] = {of_float(array_or_none(running[0], "running_mean", Access::write), "running_mean"),
                           of_float(array_or_none(running[1], "running_variance", Access::write), "running_variance")};
    for (const Array& each : kept)
        if (each.data()) check_count(each, "the running statistics", layer.channels, "as many as channels");
    layer.momentum = momentum;
    layer.runningMean = static_cast<float*>(kept[0].data());
    layer.runningVariance = static_cast<float*>(kept[1].data());
    const Array out[2] = {of_float(array_or_none(mean, "mean", Access::write), "mean"),
                          of_float(array_or_none(invstd, "invstd", Access::write), "invstd")};
    const Array kept_count = array_or_none(count, "count", Access::write);
    if (kept_count.data() && kept_count.type() != weftInt64 && kept_count.type() != weftUint64)
        refuse("python.dtype", std::string("count has dtype ") + name_of(kept_count.type()) + "; it must be int64");
    if (kept_count.data()) check_count(kept_count, "count", 1, "because it is one number");
    uint64_t found = 0;
    auto* const total = kept_count.data() ? static_cast<uint64_t*>(kept_count.data()) : &found;
    comm.run([&](weftComm_t handle) {
        return weftTrainBatchNormForward(&layer, input.data(), static_cast<float*>(out[0].data()),
                                         static_cast<float*>(out[1].data()), total, handle, on.handle);
    });
    return found;
}

void batch_norm_backward(Comm& comm, nb::handle x, nb::handle dy, const std::vector<size_t>& shape, nb::handle mean,
                         nb::handle own, nb::handle all, nb::handle stream) {
    const StreamArgument on(stream);
    const Array input = array_or_none(x, "x", Access::read), slope = array_or_none(dy, "dy", Access::read);
    check_alike(input, "x", slope, "dy");
    check_count(slope, "dy", input.count(), "as many as x");
    const weftTrainBatchNorm_t layer = layer_of(input, shape, 1e-5);
    const Array middle = of_float(array_or_none(mean, "mean", Access::read), "mean");
    check_count(middle, "mean", layer.channels, "as many as channels");
    const Array out[2] = {of_float(array_or_none(own, "own", Access::write), "own"),
                          of_float(array_or_none(all, "all", Access::write), "all")};
    comm.run([&](weftComm_t handle) {
        return weftTrainBatchNormBackward(&layer, input.data(), slope.data(), static_cast<const float*>(middle.data()),
                                          static_cast<float*>(out[0].data()), static_cast<float*>(out[1].data()),
                                          handle, on.handle);
    });
}

uint64_t sampler_count(uint64_t samples, int ranks, bool drop_last) {
    uint64_t count = 0;
    check(weftTrainSamplerCount(samples, ranks, drop_last ? 1 : 0, &count));
    return count;
}

std::vector<uint64_t> sampler_indices(uint64_t samples, int ranks, int rank, bool drop_last,
                                      const std::vector<uint64_t>& order) {
    if (!order.empty() && order.size() != samples)
        refuse("python.size",
               "order has " + std::to_string(order.size()) + " samples; it must have " + std::to_string(samples));
    std::vector<uint64_t> indices(sampler_count(samples, ranks, drop_last));
    check(weftTrainSamplerIndices(samples, ranks, rank, drop_last ? 1 : 0, order.empty() ? nullptr : order.data(),
                                  indices.data()));
    return indices;
}

std::vector<uint64_t> shuffled(uint64_t samples, uint64_t seed) {
    std::vector<uint64_t> order(samples);
    check(weftTrainShuffle(samples, seed, order.data()));
    return order;
}

double gradient_norm(const nb::list& entries, const nb::list& comms, double p, nb::handle stream) {
    const StreamArgument on(stream);
    const TrainParts parts(entries);
    const TrainAxes axes(comms);
    const auto handles = axes.handles();
    double norm = 0;
    axes.run([&] {
        return weftTrainGradientNorm(parts.data(), parts.size(), handles.data(), handles.size(), p, &norm, on.handle);
    });
    return norm;
}

void clip_gradients(const nb::list& entries, double norm, double max_norm, bool error_if_nonfinite, nb::handle stream) {
    const StreamArgument on(stream);
    const TrainParts parts(entries);
    check(unlocked([&] {
        return weftTrainClipGradients(parts.data(), parts.size(), norm, max_norm, error_if_nonfinite ? 1 : 0,
                                      on.handle);
    }));
}

}  // namespace

TrainAxes::TrainAxes(const nb::list& comms) {
    for (nb::handle comm : comms) {
        nb::cast<Comm&>(comm);  // refuses other types
        objects_.push_back(nb::borrow(comm));
    }
}

std::vector<weftComm_t> TrainAxes::handles() const {
    std::vector<weftComm_t> handles;
    for (const nb::object& object : objects_) handles.push_back(nb::cast<Comm&>(object).handle());
    return handles;
}

template <class Body>
void TrainAxes::run(Body&& body) const {
    (void)handles();  // an axis that is closed is an error
    std::vector<Interruptible*> waited;
    for (const nb::object& object : objects_) waited.push_back(&nb::cast<Comm&>(object));
    check(without_gil(waited, body));
}

int TrainAxes::visit(visitproc visit, void* arg) const {
    for (const nb::object& object : objects_) Py_VISIT(object.ptr());
    return 0;
}

TrainParts::TrainParts(const nb::list& entries) {
    for (nb::handle entry : entries) {
        const auto fields = nb::cast<nb::tuple>(entry);
        weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
        part.name = PyUnicode_AsUTF8(fields[0].ptr());
        if (!part.name) throw nb::python_error();
        const std::string name = part.name;
        values_.push_back(of_float(array_or_none(fields[1], name, Access::write), name));
        copies_.push_back(array_or_none(fields[2], "the copy of " + name, Access::write));
        gradients_.emplace_back();
        part.values = static_cast<float*>(values_.back().data());
        part.copy = copies_.back().data();
        part.copyType = part.copy ? copies_.back().type() : weftBfloat16;
        part.axes = nb::cast<unsigned>(fields[4]);
        part.count = values_.back().count();
        if (part.copy)
            check_count(copies_.back(), ("the copy of " + name).c_str(), part.count, "as many as its parameter");
        if (fields.size() > 5 && !fields[5].is_none()) part.gradientType = type_named(fields[5]);
        parts_.push_back(part);
        if (!fields[3].is_none()) {
            const Array gradient = array_or_none(fields[3], "the gradient of " + name, Access::read);
            parts_.back().gradientType = gradient.type();
            if (fields[1].is_none()) parts_.back().count = gradient.count();
        }
        set_gradient(parts_.size() - 1, fields[3]);
    }
}

void* TrainParts::set_gradient(size_t number, nb::handle object) {
    weftTrainPart_t& part = parts_[number];
    const std::string name = std::string("the gradient of ") + part.name;
    Array gradient = array_or_none(object, name, Access::write);
    if (!object.is_none()) {
        check_count(gradient, name.c_str(), part.count, "as many as its parameter");
        if (gradient.type() != part.gradientType)
            refuse("python.dtype", name + " has dtype " + name_of(gradient.type()) + "; it must be " +
                                       name_of(part.gradientType) + ", as when the optimizer was made");
    }
    part.gradient = gradient.data();
    gradients_[number] = std::move(gradient);
    return part.gradient;
}

bool TrainParts::on_device() const {
    for (const std::vector<Array>* arrays : {&values_, &gradients_})
        for (const Array& array : *arrays)
            if (array.data()) return array.on_device();
    return false;
}

int TrainParts::visit(visitproc visit, void* arg) const {
    for (const std::vector<Array>* arrays : {&values_, &copies_, &gradients_})
        for (const Array& array : *arrays)
            if (const int stop = array.visit(visit, arg)) return stop;
    return 0;
}

void TrainParts::clear() {
    values_.clear();
    copies_.clear();
    gradients_.clear();
}

TrainOptimizer::TrainOptimizer(const nb::list& parts, const nb::list& axes, const nb::dict& settings,
                               const nb::object& ddp, const nb::object& shard, const nb::object& compressor)
    : parts_(parts), axes_(axes), ddp_(ddp), shard_(shard), compressor_(compressor), process_(getpid()) {
    weftTrainOptimizerConfig_t config = optimizer_config_of(settings);
    if (!ddp.is_none()) config.ddp = nb::cast<Ddp&>(ddp).handle();
    if (!shard.is_none()) {
        const auto link = nb::cast<nb::capsule>(shard.attr("_link")());
        config.shard = static_cast<weftTrainShard_t>(link.data("weftTrainShard"));
    }
    if (!compressor.is_none()) config.compressor = nb::cast<Compressor&>(compressor).handle();
    const auto handles = axes_.handles();
    std::string folder;
    if (const nb::object given = settings["offload"]; !given.is_none()) {
        folder = nb::cast<std::string>(given);
        config.offloadFolder = folder.c_str();
    }
    axes_.run([&] {
        return weftTrainOptimizerCreate(&handle_, parts_.data(), parts_.size(), handles.data(), handles.size(),
                                        &config);
    });
    on_device_ = parts_.on_device();
    if (config.offloadFolder && config.offloadValues) parts_.drop_values();
}

TrainOptimizer::~TrainOptimizer() {
    if (handle_ && process_ == getpid()) (void)weftTrainOptimizerDestroy(handle_);
}

weftTrainOptimizer_t TrainOptimizer::handle() const {
    if (!handle_) refuse_usage("python.closed", "the Optimizer is closed. Make a new one by weft.train.Optimizer()");
    return handle_;
}

void TrainOptimizer::step(double learning_rate, double gradient_scale, bool skip, nb::handle stream) {
    const StreamArgument on(stream);
    axes_.run([&, optimizer = handle()] {
        return weftTrainOptimizerStep(optimizer, learning_rate, gradient_scale, skip ? 1 : 0, on.handle);
    });
}

void TrainOptimizer::set_gradient(int part, nb::handle gradient) {
    if (part < 0 || size_t(part) >= parts_.size()) refuse("python.value", "no such part");
    check(weftTrainOptimizerSetGradient(handle(), part, parts_.set_gradient(size_t(part), gradient)));
}

int TrainOptimizer::state_count() {
    int states = 0;
    check(weftTrainOptimizerGetStateCount(handle(), &states));
    return states;
}

std::pair<const char*, float*> TrainOptimizer::state(int part, int number) {
    std::pair<const char*, float*> found;
    check(weftTrainOptimizerGetState(handle(), part, number, &found.first, &found.second));
    return found;
}

const char* TrainOptimizer::state_name(int number) {
    const char* name = nullptr;
    check(weftTrainOptimizerGetState(handle(), 0, number, &name, nullptr));
    return name;
}

void TrainOptimizer::read_state(int part, int number, nb::handle to) {
    const Array values = float_array(to, "values", Access::write);
    check_count(values, "values", bytes_of_state(part) / sizeof(float), "as many as the parameter");
    check(weftTrainOptimizerReadState(handle(), part, number, static_cast<float*>(values.data())));
}

void TrainOptimizer::write_state(int part, int number, nb::handle from) {
    const Array values = float_array(from, "values", Access::read);
    check_count(values, "values", bytes_of_state(part) / sizeof(float), "as many as the parameter");
    check(weftTrainOptimizerWriteState(handle(), part, number, static_cast<const float*>(values.data())));
}

uint64_t TrainOptimizer::steps(int part) {
    uint64_t steps = 0;
    check(weftTrainOptimizerGetSteps(handle(), part, &steps));
    return steps;
}

void TrainOptimizer::set_steps(int part, uint64_t steps) { check(weftTrainOptimizerSetSteps(handle(), part, steps)); }

nb::tuple TrainOptimizer::trust(int part) {
    double trust = 0, factor = 0;
    check(weftTrainOptimizerGetTrust(handle(), part, &trust, &factor));
    return nb::make_tuple(trust, factor);
}

void TrainOptimizer::set_trust(int part, double trust, double factor) {
    check(weftTrainOptimizerSetTrust(handle(), part, trust, factor));
}

void TrainOptimizer::close() {
    if (!handle_) return;
    if (views_ > 0) refuse_usage("python.closed", "arrays over the states of the Optimizer exist. Delete them first");
    if (process_ == getpid()) check(weftTrainOptimizerDestroy(handle_));
    handle_ = nullptr;
    parts_.clear();
}

int TrainOptimizer::visit(visitproc visit, void* arg) const {
    Py_VISIT(ddp_.ptr());
    Py_VISIT(shard_.ptr());
    Py_VISIT(compressor_.ptr());
    if (const int stop = parts_.visit(visit, arg)) return stop;
    return axes_.visit(visit, arg);
}

TrainScaler::TrainScaler(const nb::list& axes, const nb::dict& settings) : axes_(axes), process_(getpid()) {
    weftTrainScalerConfig_t config = WEFT_TRAIN_SCALER_CONFIG_INITIALIZER;
    config.scale = nb::cast<double>(settings["scale"]);
    config.growthFactor = nb::cast<double>(settings["growth_factor"]);
    config.backoffFactor = nb::cast<double>(settings["backoff_factor"]);
    config.growthInterval = nb::cast<int>(settings["growth_interval"]);
    config.leastScale = nb::cast<double>(settings["least_scale"]);
    const auto handles = axes_.handles();
    check(weftTrainScalerCreate(&handle_, handles.data(), handles.size(), &config));
}

TrainScaler::~TrainScaler() {
    if (handle_ && process_ == getpid()) (void)weftTrainScalerDestroy(handle_);
}

weftTrainScaler_t TrainScaler::handle() const {
    if (!handle_) refuse_usage("python.closed", "the Scaler is closed. Make a new one by weft.train.Scaler()");
    return handle_;
}

double TrainScaler::scale() {
    double scale = 0;
    check(weftTrainScalerGetState(handle(), &scale, nullptr));
    return scale;
}

int TrainScaler::good_steps() {
    int steps = 0;
    check(weftTrainScalerGetState(handle(), nullptr, &steps));
    return steps;
}

void TrainScaler::restore(double scale, int good_steps) { check(weftTrainScalerSetState(handle(), scale, good_steps)); }

bool TrainScaler::unscale(const nb::list& entries, bool divide, nb::handle stream) {
    const StreamArgument on(stream);
    const TrainParts parts(entries);
    int found = 0;
    axes_.run([&, scaler = handle()] {
        return weftTrainScalerUnscale(scaler, parts.data(), parts.size(), divide ? 1 : 0, &found, on.handle);
    });
    return found != 0;
}

void TrainScaler::update() { check(weftTrainScalerUpdate(handle())); }

void TrainScaler::close() {
    if (handle_ && process_ == getpid()) check(weftTrainScalerDestroy(handle_));
    handle_ = nullptr;
}

void bind_training_optimizer(nb::module_& module) {
    MemoryView<TrainOptimizer>::bind(module, "OptimizerMemory");
    MemoryView<TrainOptimizer, true>::bind(module, "OptimizerDeviceMemory");
    nb::class_<TrainOptimizer>(module, "TrainOptimizer", nb::type_slots(collected<TrainOptimizer>()),
                               nb::is_weak_referenceable())
        .def(nb::init<const nb::list&, const nb::list&, const nb::dict&, const nb::object&, const nb::object&,
                      const nb::object&>(),
             nb::arg("parts"), nb::arg("axes"), nb::arg("settings"), nb::arg("ddp").none(), nb::arg("shard").none(),
             nb::arg("compressor").none(), InFrame())
        .def("_step", &TrainOptimizer::step, nb::arg("learning_rate"), nb::arg("gradient_scale"), nb::arg("skip"),
             nb::arg("stream").none(), InFrame())
        .def("_set_gradient", &TrainOptimizer::set_gradient, nb::arg("part"), nb::arg("gradient").none(), InFrame())
        .def("_states",
             [](nb::object self, int part) {
                 auto& own = nb::cast<TrainOptimizer&>(self);
                 nb::list states;
                 for (int i = 0; i < own.state_count(); ++i) {
                     const auto [name, values] = own.state(part, i);
                     const size_t bytes = own.bytes_of_state(part);
                     states.append(nb::make_tuple(
                         name, own.on_device() ? MemoryView<TrainOptimizer, true>::make(self, values, bytes)
                                               : MemoryView<TrainOptimizer>::make(self, values, bytes)));
                 }
                 return states;
             })
        .def("_state_names",
             [](TrainOptimizer& own) {
                 std::vector<std::string> names;
                 for (int i = 0; i < own.state_count(); ++i) names.emplace_back(own.state_name(i));
                 return names;
             })
        .def("_read_state", &TrainOptimizer::read_state, InFrame())
        .def("_write_state", &TrainOptimizer::write_state, InFrame())
        .def("_steps", &TrainOptimizer::steps, InFrame())
        .def("_set_steps", &TrainOptimizer::set_steps, InFrame())
        .def("_trust", &TrainOptimizer::trust, InFrame())
        .def("_set_trust", &TrainOptimizer::set_trust, InFrame())
        .def("_close", &TrainOptimizer::close, InFrame());
    nb::class_<TrainScaler>(module, "TrainScaler", nb::type_slots(collected<TrainScaler>()),
                            nb::is_weak_referenceable())
        .def(nb::init<const nb::list&, const nb::dict&>(), nb::arg("axes"), nb::arg("settings"), InFrame())
        .def("_scale", &TrainScaler::scale, InFrame())
        .def("_good_steps", &TrainScaler::good_steps, InFrame())
        .def("_restore", &TrainScaler::restore, InFrame())
        .def("_unscale", &TrainScaler::unscale, nb::arg("parts"), nb::arg("divide"), nb::arg("stream").none(),
             InFrame())
        .def("_update", &TrainScaler::update, InFrame())
        .def("_close", &TrainScaler::close, InFrame());
    module.def("train_norm", &gradient_norm, nb::arg("parts"), nb::arg("axes"), nb::arg("p"), nb::arg("stream").none(),
               InFrame());
    module.def("train_clip", &clip_gradients, nb::arg("parts"), nb::arg("norm"), nb::arg("max_norm"),
               nb::arg("error_if_nonfinite"), nb::arg("stream").none(), InFrame());
    module.def("train_batch_norm_forward", &batch_norm_forward, nb::arg("comm"), nb::arg("x"), nb::arg("shape"),
               nb::arg("eps"), nb::arg("momentum"), nb::arg("running"), nb::arg("mean"), nb::arg("invstd"),
               nb::arg("count").none(), nb::arg("stream").none(), InFrame());
    module.def("train_batch_norm_backward", &batch_norm_backward, nb::arg("comm"), nb::arg("x"), nb::arg("dy"),
               nb::arg("shape"), nb::arg("mean"), nb::arg("own"), nb::arg("all"), nb::arg("stream").none(), InFrame());
    module.def("train_sampler_count", &sampler_count, InFrame());
    module.def("train_sampler_indices", &sampler_indices, InFrame());
    module.def("train_shuffle", &shuffled, InFrame());
}

}  // namespace weft::python
