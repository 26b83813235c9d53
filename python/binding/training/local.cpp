// local.cpp: weft.train.Local: Local SGD and DiLoCo.
#include <nanobind/stl/vector.h>

#include "python/binding/stream.hpp"
#include "python/binding/training/object.hpp"

namespace weft::python {

namespace {

size_t bytes_of_state(const weftTrainLocalState_t& state) { return state.count * bytes_of(state.datatype); }

class Local final : public TrainingObject<weftTrainLocal_t> {
  public:
    Local(nb::object comm, const nb::list& parameters, const nb::dict& settings)
        : TrainingObject(
              std::move(comm), [](weftTrainLocal_t own) { return weftTrainLocalDestroy(own); },
              [](weftTrainLocal_t own) { return weftTrainLocalAbort(own); }) {
        TrainingArrays read;
        weftTrainLocalConfig_t config = WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER;
        std::vector<int> fragment_of;
        make(
            [&] {
                read.read(parameters);
                read_settings(settings, read.tensors.size(), config, fragment_of);
            },
            [&](weftComm_t own, weftTrainLocal_t* made) {
                return weftTrainLocalCreate(made, own, read.tensors.data(), read.tensors.size(), &config);
            },
            [](weftComm_t own, weftTrainLocal_t* made) {
                return weftTrainLocalCreate(made, own, nullptr, 0, nullptr);
            });
        arrays_ = std::move(read.arrays);
    }

    bool step(nb::handle stream) {
        const StreamArgument on(stream);
        int changed = 0;
        run([&](weftTrainLocal_t own) { return weftTrainLocalStep(own, &changed, on.handle); });
        return changed != 0;
    }
    bool accumulates() {
        weftTrainMode_t mode = weftTrainAccumulate;
        check(weftTrainLocalGetMode(handle(), &mode));
        return mode == weftTrainAccumulate;
    }
    uint64_t steps() {
        uint64_t steps = 0;
        check(weftTrainLocalGetSteps(handle(), &steps));
        return steps;
    }
    void restore(uint64_t steps) {
        run([&](weftTrainLocal_t own) { return weftTrainLocalRestore(own, steps); });
    }
    nb::tuple state(int parameter) {
        const weftTrainLocalState_t found = found_state(parameter);
        const size_t bytes = found.anchor ? bytes_of_state(found) : 0;
        nb::object copies[3];
        for (int i = 0; i < 3; ++i) copies[i] = copied(parameter, i, bytes, found.reduced || i < 2);
        return nb::make_tuple(copies[0], copies[1], copies[2]);
    }
    void set_state(int parameter, const nb::object& anchor, const nb::object& momentum, const nb::object& reduced) {
        const weftTrainLocalState_t found = found_state(parameter);
        const std::pair<const nb::object*, const void*> parts[] = {
            {&anchor, found.anchor}, {&momentum, found.momentum}, {&reduced, found.reduced}};
        const auto bytes_in = [&](const nb::object& part) {
            return part.is_none() ? 0 : nb::cast<nb::bytes>(part).size();
        };
        // All are checked before the first one changes.
        for (const auto& [part, memory] : parts)
            if (bytes_in(*part) != (memory ? bytes_of_state(found) : 0))
                refuse("python.value", "the state of parameter " + std::to_string(parameter) +
                                           " is of another model, or of other settings. Load the state that belongs "
                                           "to these parameters");
        for (int i = 0; i < 3; ++i) {
            if (!parts[i].second || bytes_in(*parts[i].first) == 0) continue;
            const void* const values = nb::cast<nb::bytes>(*parts[i].first).c_str();
            run([&](weftTrainLocal_t own) { return weftTrainLocalWriteState(own, parameter, i, values); });
        }
    }

  private:
    nb::object copied(int parameter, int array, size_t bytes, bool exists) {
        if (!exists && bytes > 0) return nb::none();
        nb::object copy = nb::steal(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(bytes)));
        if (!copy) throw nb::python_error();
        void* const values = PyBytes_AS_STRING(copy.ptr());
        if (bytes > 0)
            run([&](weftTrainLocal_t own) { return weftTrainLocalReadState(own, parameter, array, values); });
        return copy;
    }
    static void read_settings(const nb::dict& settings, size_t parameters, weftTrainLocalConfig_t& config,
                              std::vector<int>& fragment_of) {
        config.method = nb::cast<bool>(settings["outer"]) ? weftTrainDiloco : weftTrainAverage;
        config.period = nb::cast<uint64_t>(settings["period"]);
        config.warmup = nb::cast<uint64_t>(settings["warmup"]);
        config.fragments = nb::cast<int>(settings["fragments"]);
        config.delay = nb::cast<uint64_t>(settings["delay"]);
        config.learningRate = nb::cast<double>(settings["learning_rate"]);
        config.momentum = nb::cast<double>(settings["momentum"]);
        config.mix = nb::cast<double>(settings["mix"]);
        const nb::object given = settings["fragment_of"];
        if (given.is_none()) return;
        fragment_of = nb::cast<std::vector<int>>(given);
        if (fragment_of.size() != parameters)
            refuse("python.value", "fragment_of has " + std::to_string(fragment_of.size()) + " entries for " +
                                       std::to_string(parameters) + " parameters. Pass one for each");
        config.fragmentOf = fragment_of.data();
    }
    weftTrainLocalState_t found_state(int parameter) {
        weftTrainLocalState_t found = WEFT_TRAIN_LOCAL_STATE_INITIALIZER;
        run([&](weftTrainLocal_t own) { return weftTrainLocalGetState(own, parameter, &found); });
        return found;
    }
};

}  // namespace

void bind_training_local(nb::module_& module) {
    nb::class_<Local>(module, "Local", nb::type_slots(collected<Local>()), nb::is_weak_referenceable())
        .def(nb::init<nb::object, const nb::list&, const nb::dict&>(), nb::arg("comm"), nb::arg("parameters"),
             nb::arg("settings"), InFrame())
        .def("_step", &Local::step, nb::arg("stream").none(), InFrame())
        .def("_accumulates", &Local::accumulates, InFrame())
        .def("_steps", &Local::steps, InFrame())
        .def("_restore", &Local::restore, InFrame())
        .def("_state", &Local::state, InFrame())
        .def("_set_state", &Local::set_state, nb::arg("parameter"), nb::arg("anchor").none(),
             nb::arg("momentum").none(), nb::arg("reduced").none(), InFrame())
        .def("_abort", &Local::abort, InFrame())
        .def(
            "_give_up",
            [](Local& local) {
                const Unlocked gil_is_free;
                local.abort_quietly();
            },
            InFrame())
        .def("_close", &Local::close, InFrame());
}

}  // namespace weft::python
