#include "python/binding/training/replica.hpp"

#include <nanobind/stl/string.h>
#include <unistd.h>

#include <utility>

#include "python/binding/bindings.hpp"
#include "python/binding/training/boxes.hpp"

namespace weft::python {

Replica::Replica(int jump, int copies) : process_(getpid()) { check(weftTrainReplicaCreate(&handle_, jump, copies)); }

Replica::~Replica() {
    if (handle_ && process_ == getpid()) (void)weftTrainReplicaDestroy(handle_);
}

weftTrainReplica_t Replica::handle() const {
    if (!handle_) refuse_usage("python.closed", "the Replica is closed. Make a new one by weft.train.Replica()");
    return handle_;
}

void Replica::save(Comm& comm, uint64_t version, const nb::list& boxes, const nb::list& items) const {
    const weftTrainReplica_t own = handle();
    Described described;
    try {
        for (nb::handle each : boxes) described.add_box(each, Access::read);
        for (nb::handle each : items) described.add_item(each);
    } catch (...) {
        // The other ranks wait for this one: they get an error as well.
        comm.run([&](weftComm_t handle) {
            (void)weftTrainReplicaSave(own, handle, version, nullptr, 1, nullptr, 0);
            return weftSuccess;
        });
        throw;
    }
    comm.run([&](weftComm_t handle) {
        return weftTrainReplicaSave(own, handle, version, described.boxes.data(), described.boxes.size(),
                                    described.items.data(), described.items.size());
    });
}

uint64_t Replica::load(Comm& comm, const nb::list& boxes) const {
    const weftTrainReplica_t own = handle();
    uint64_t version = 0;
    Described described;
    try {
        for (nb::handle each : boxes) described.add_box(each, Access::write);
    } catch (...) {
        comm.run([&](weftComm_t handle) {
            (void)weftTrainReplicaLoad(own, handle, nullptr, 1, &version);
            return weftSuccess;
        });
        throw;
    }
    comm.run([&](weftComm_t handle) {
        return weftTrainReplicaLoad(own, handle, described.boxes.data(), described.boxes.size(), &version);
    });
    return version;
}

nb::bytes Replica::item(const std::string& name, bool per_rank) const {
    size_t bytes = 0;
    check(weftTrainReplicaGetItem(handle(), name.c_str(), per_rank ? 1 : 0, nullptr, 0, &bytes));
    std::string data(bytes, '\0');
    check(weftTrainReplicaGetItem(handle(), name.c_str(), per_rank ? 1 : 0, data.data(), bytes, &bytes));
    return nb::bytes(data.data(), data.size());
}

void Replica::close() {
    if (const weftTrainReplica_t own = std::exchange(handle_, nullptr); own && process_ == getpid())
        check(weftTrainReplicaDestroy(own));
}

void bind_replica(nb::module_& module) {
    nb::class_<Replica>(module, "Replica", nb::is_weak_referenceable())
        .def(nb::init<int, int>(), nb::arg("jump"), nb::arg("copies"), InFrame())
        .def("_save", &Replica::save, InFrame())
        .def("_load", &Replica::load, InFrame())
        .def("_item", &Replica::item, InFrame())
        .def("_close", &Replica::close, InFrame());
}

}  // namespace weft::python
