// stragglers.cpp: weft.train.Stragglers.
#include <nanobind/stl/vector.h>

#include "python/binding/training/object.hpp"

namespace weft::python {

namespace {

class Stragglers final : public TrainingObject<weftTrainStragglers_t> {
  public:
    Stragglers(nb::object comm, const nb::object& interval, const nb::object& interval_steps,
               const nb::object& threshold)
        : TrainingObject(
              std::move(comm), [](weftTrainStragglers_t own) { return weftTrainStragglersDestroy(own); },
              [](weftTrainStragglers_t own) { return weftTrainStragglersAbort(own); }) {
        weftTrainStragglersConfig_t config = WEFT_TRAIN_STRAGGLERS_CONFIG_INITIALIZER;
        make(
            [&] {
                config.intervalSeconds = nb::cast<double>(interval);
                config.intervalSteps = nb::cast<uint64_t>(interval_steps);
                config.threshold = nb::cast<double>(threshold);
            },
            [&](weftComm_t own, weftTrainStragglers_t* made) { return weftTrainStragglersCreate(made, own, &config); },
            [&](weftComm_t own, weftTrainStragglers_t* made) {
                config.intervalSeconds = 0;
                return weftTrainStragglersCreate(made, own, &config);
            });
    }

    bool step(double seconds) {
        int reported = 0;
        run([&](weftTrainStragglers_t own) { return weftTrainStragglersStep(own, seconds, &reported); });
        return reported != 0;
    }
    void report() { run(weftTrainStragglersReport); }
    std::vector<double> scores(bool own_best) {
        std::vector<double> scores(size_t(nb::cast<Comm&>(comm_).size()));
        check(weftTrainStragglersGetScores(handle(), own_best ? weftTrainOwnBest : weftTrainFastestRank, scores.data(),
                                           int(scores.size())));
        return scores;
    }
};

}  // namespace

void bind_training_stragglers(nb::module_& module) {
    nb::class_<Stragglers>(module, "Stragglers", nb::type_slots(collected<Stragglers>()), nb::is_weak_referenceable())
        .def(nb::init<nb::object, const nb::object&, const nb::object&, const nb::object&>(), nb::arg("comm"),
             nb::arg("interval"), nb::arg("interval_steps"), nb::arg("threshold"), InFrame())
        .def("_step", &Stragglers::step, nb::arg("seconds"), InFrame())
        .def("_report", &Stragglers::report, InFrame())
        .def("_scores", &Stragglers::scores, nb::arg("own_best"), InFrame())
        .def("_abort", &Stragglers::abort, InFrame())
        .def(
            "_give_up",
            [](Stragglers& stragglers) {
                const Unlocked gil_is_free;
                stragglers.abort_quietly();
            },
            InFrame())
        .def("_close", &Stragglers::close, InFrame());
}

}  // namespace weft::python
