#include "python/binding/training/compressor.hpp"

#include <nanobind/stl/string.h>

#include <string>

#include "python/binding/array.hpp"
#include "python/binding/bindings.hpp"
#include "python/binding/failure.hpp"

namespace weft::python {

namespace {

weftTrainCompression_t method_named(const std::string& name) {
    const char* const names[] = {"powersgd", "topk", "onebit", "int8", "float8"};
    for (int method = 0; method < 5; ++method)
        if (name == names[method]) return weftTrainCompression_t(method);
    refuse("python.value", "method is " + name + "; it must be powersgd, topk, onebit, int8 or float8");
}

}  // namespace

Compressor::Compressor(const nb::dict& settings) {
    weftTrainCompressorConfig_t config = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
    config.method = method_named(nb::cast<std::string>(settings["method"]));
    config.startIteration = nb::cast<int64_t>(settings["start_iteration"]);
    config.errorFeedback = nb::cast<bool>(settings["error_feedback"]) ? 1 : 0;
    config.rank = nb::cast<int>(settings["rank"]);
    config.leastRate = nb::cast<double>(settings["least_rate"]);
    config.warmStart = nb::cast<bool>(settings["warm_start"]) ? 1 : 0;
    config.seed = nb::cast<uint64_t>(settings["seed"]);
    config.density = nb::cast<double>(settings["density"]);
    config.blockCount = nb::cast<size_t>(settings["block_count"]);
    config.momentum = nb::cast<double>(settings["momentum"]);
    config.float8 = type_named(settings["float8"]);
    config.layerScales = nb::cast<bool>(settings["layer_scales"]) ? 1 : 0;
    check(weftTrainCompressorCreate(&handle_, &config));
}

Compressor::~Compressor() { (void)weftTrainCompressorDestroy(handle_); }

nb::bytes Compressor::save() const {
    size_t bytes = 0;
    check(weftTrainCompressorSave(handle_, nullptr, &bytes));
    std::string state(bytes, '\0');
    check(weftTrainCompressorSave(handle_, state.data(), &bytes));
    return nb::bytes(state.data(), state.size());
}

void Compressor::load(const nb::bytes& state) { check(weftTrainCompressorLoad(handle_, state.data(), state.size())); }

bool Compressor::compressed() const {
    int compressed = 0;
    check(weftTrainCompressorGetCompressed(handle_, &compressed));
    return compressed != 0;
}

void bind_compressors(nb::module_& module) {
    nb::class_<Compressor>(module, "Compressor", nb::is_weak_referenceable())
        .def(nb::init<const nb::dict&>(), nb::arg("settings"), InFrame())
        .def("_compressed", &Compressor::compressed, InFrame())
        .def("_save", &Compressor::save, InFrame())
        .def("_load", &Compressor::load, InFrame());
}

}  // namespace weft::python
