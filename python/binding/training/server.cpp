// server.cpp: weft.train.ParameterServer.
#include <nanobind/stl/vector.h>

#include <cstring>

#include "python/binding/stream.hpp"
#include "python/binding/training/object.hpp"

namespace weft::python {

namespace {

class Server final : public TrainingObject<weftTrainServer_t> {
  public:
    Server(nb::object comm, const nb::list& parameters, const nb::dict& settings, nb::object update)
        : TrainingObject(
              std::move(comm), [](weftTrainServer_t own) { return weftTrainServerDestroy(own); },
              [](weftTrainServer_t own) { return weftTrainServerAbort(own); }),
          update_(std::move(update)) {
        TrainingArrays read;
        weftTrainServerConfig_t config = WEFT_TRAIN_SERVER_CONFIG_INITIALIZER;
        make(
            [&] {
                read.read(parameters);
                config.servers = nb::cast<int>(settings["servers"]);
                config.accepted = nb::cast<int>(settings["accepted"]);
                config.learningRate = nb::cast<double>(settings["learning_rate"]);
                config.timeoutMs = nb::cast<int64_t>(settings["timeout_ms"]);
                if (!settings["staleness"].is_none()) config.staleness = nb::cast<uint64_t>(settings["staleness"]);
                if (update_.is_none()) return;
                for (const Array& array : read.arrays)
                    if (array.on_device())
                        refuse("python.device",
                               "an update changes the server's arrays, and these lie on a device, where the server "
                               "does not keep them. Pass arrays of host memory on servers, or learning_rate");
                config.update = call_update;
                config.updateContext = this;
            },
            [&](weftComm_t own, weftTrainServer_t* made) {
                return weftTrainServerCreate(made, own, read.tensors.data(), read.tensors.size(), &config);
            },
            [](weftComm_t own, weftTrainServer_t* made) {
                return weftTrainServerCreate(made, own, nullptr, 0, nullptr);
            });
        arrays_ = std::move(read.arrays);
    }

    void serve() {
        run_with_update([](weftTrainServer_t own) { return weftTrainServerServe(own); });
    }
    void push(nb::handle stream) {
        const StreamArgument on(stream);
        run([&](weftTrainServer_t own) { return weftTrainServerPush(own, on.handle); });
    }
    void pull(nb::handle stream) {
        const StreamArgument on(stream);
        run([&](weftTrainServer_t own) { return weftTrainServerPull(own, on.handle); });
    }
    void finish() {
        run([](weftTrainServer_t own) { return weftTrainServerFinish(own); });
    }
    int owner(int parameter) {
        int rank = -1;
        check(weftTrainServerGetOwner(handle(), parameter, &rank));
        return rank;
    }
    nb::tuple stats() {
        weftTrainServerStats_t stats = WEFT_TRAIN_SERVER_STATS_INITIALIZER;
        check(weftTrainServerGetStats(handle(), &stats));
        return nb::make_tuple(stats.steps, stats.applied, stats.dropped, stats.slowestClock, stats.largestLead);
    }
    int visit(visitproc visit, void* arg) const {
        Py_VISIT(update_.ptr());
        Py_VISIT(cause_.ptr());
        return TrainingObject::visit(visit, arg);
    }

  private:
    // In a thread of the server, during serve(): the object outlives it.
    static weftResult_t call_update(int parameter, void*, const void* gradient, size_t count, weftDataType_t type,
                                    void* context) {
        Server& own = *static_cast<Server*>(context);
        const Locked gil;
        if (!gil) return weftInternalError;
        try {
            // A copy: the function may keep it.
            own.update_(parameter, nb::bytes(gradient, count * bytes_of(type)));
            return weftSuccess;
        } catch (nb::python_error& error) {
            own.cause_ = nb::borrow(error.value());
            return weftInvalidUsage;
        }
    }
    template <class Body>
    void run_with_update(Body&& body) {
        Interruptible* const objects[] = {this};
        const weftResult_t result = without_gil(objects, [&, own = handle()] { return body(own); });
        const nb::object cause = std::exchange(cause_, nb::object());
        if (result != weftSuccess) raise(Failure::newest(result), cause);
    }

    nb::object update_, cause_;  // the caller's function, and its exception
};

}  // namespace

void bind_training_server(nb::module_& module) {
    nb::class_<Server>(module, "ParameterServer", nb::type_slots(collected<Server>()), nb::is_weak_referenceable())
        .def(nb::init<nb::object, const nb::list&, const nb::dict&, nb::object>(), nb::arg("comm"),
             nb::arg("parameters"), nb::arg("settings"), nb::arg("update").none(), InFrame())
        .def("_serve", &Server::serve, InFrame())
        .def("_push", &Server::push, nb::arg("stream").none(), InFrame())
        .def("_pull", &Server::pull, nb::arg("stream").none(), InFrame())
        .def("_finish", &Server::finish, InFrame())
        .def("_owner", &Server::owner, InFrame())
        .def("_stats", &Server::stats, InFrame())
        .def("_abort", &Server::abort, InFrame())
        .def(
            "_give_up",
            [](Server& server) {
                const Unlocked gil_is_free;
                server.abort_quietly();
            },
            InFrame())
        .def("_close", &Server::close, InFrame());
}

}  // namespace weft::python
