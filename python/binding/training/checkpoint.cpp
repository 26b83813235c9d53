#include "python/binding/training/checkpoint.hpp"

#include <nanobind/stl/string.h>
#include <unistd.h>

#include <utility>

#include "python/binding/bindings.hpp"
#include "python/binding/collector.hpp"
#include "python/binding/group.hpp"
#include "python/binding/training/boxes.hpp"

namespace weft::python {

Checkpoint::Checkpoint(nb::object comm) : comm_(std::move(comm)), process_(getpid()) {
    weftTrainCheckpoint_t made = nullptr;
    nb::cast<Comm&>(comm_).run([&](weftComm_t handle) { return weftTrainCheckpointCreate(&made, handle); });
    handle_.store(made);
}

Checkpoint::~Checkpoint() {
    const weftTrainCheckpoint_t checkpoint = handle_.exchange(nullptr);
    if (!checkpoint || process_ != getpid()) return;
    const Frame frame;
    const Unlocked unlocked;
    (void)weftTrainCheckpointDestroy(checkpoint);
}

weftTrainCheckpoint_t Checkpoint::handle() const {
    const weftTrainCheckpoint_t handle = handle_.load(std::memory_order_relaxed);
    if (!handle) refuse_usage("python.closed", "the Checkpoint is closed. Make a new one by weft.train.Checkpoint()");
    return handle;
}

template <class Body>
void Checkpoint::run(Body&& body) {
    Interruptible* const objects[] = {this};
    check(without_gil(objects, [&, own = handle()] { return body(own); }));
}

void Checkpoint::save(const std::string& folder, const nb::list& boxes, const nb::list& items, bool background) {
    Described described;
    try {
        for (nb::handle each : boxes) described.add_box(each, Access::read);
        for (nb::handle each : items) described.add_item(each);
    } catch (...) {
        // The other ranks wait for this one: they get an error as well.
        (void)unlocked([&, own = handle()] {
            return weftTrainCheckpointSave(own, folder.c_str(), nullptr, 1, nullptr, 0, weftTrainSaveBlocking);
        });
        throw;
    }
    run([&](weftTrainCheckpoint_t own) {
        return weftTrainCheckpointSave(own, folder.c_str(), described.boxes.data(), described.boxes.size(),
                                       described.items.data(), described.items.size(),
                                       background ? weftTrainSaveBackground : weftTrainSaveBlocking);
    });
}

void Checkpoint::load(const std::string& folder, const nb::list& boxes) {
    Described described;
    try {
        for (nb::handle each : boxes) described.add_box(each, Access::write);
    } catch (...) {
        (void)unlocked([&, own = handle()] { return weftTrainCheckpointLoad(own, folder.c_str(), nullptr, 1); });
        throw;
    }
    run([&](weftTrainCheckpoint_t own) {
        return weftTrainCheckpointLoad(own, folder.c_str(), described.boxes.data(), described.boxes.size());
    });
}

bool Checkpoint::test() {
    int done = 0;
    check(weftTrainCheckpointTest(handle(), &done));
    return done != 0;
}

void Checkpoint::wait() {
    run([](weftTrainCheckpoint_t own) { return weftTrainCheckpointWait(own); });
}

int Checkpoint::ranks() {
    int ranks = 0;
    check(weftTrainCheckpointGetRanks(handle(), &ranks));
    return ranks;
}

nb::bytes Checkpoint::item(const std::string& name, int rank) {
    size_t bytes = 0;
    check(weftTrainCheckpointGetItem(handle(), name.c_str(), rank, nullptr, 0, &bytes));
    std::string data(bytes, '\0');
    check(unlocked([&, own = handle()] {
        return weftTrainCheckpointGetItem(own, name.c_str(), rank, data.data(), bytes, &bytes);
    }));
    return nb::bytes(data.data(), data.size());
}

void Checkpoint::export_file(const std::string& folder, const std::string& file, const std::string& prefix) {
    run([&](weftTrainCheckpoint_t own) {
        return weftTrainCheckpointExport(own, folder.c_str(), prefix.c_str(), file.c_str());
    });
}

void Checkpoint::abort() {
    check(unlocked([own = handle()] { return weftTrainCheckpointAbort(own); }));
}

void Checkpoint::abort_quietly() noexcept {
    if (const weftTrainCheckpoint_t own = handle_.load()) (void)weftTrainCheckpointAbort(own);
}

void Checkpoint::close() {
    if (!handle_.load()) return;
    if (process_ != getpid()) {
        handle_.store(nullptr);
        return;
    }
    const weftTrainCheckpoint_t own = handle();
    Interruptible* const objects[] = {this};
    const weftResult_t result = without_gil(objects, [&] { return weftTrainCheckpointDestroy(own); });
    handle_.store(nullptr);
    check(result);
}

int Checkpoint::visit(visitproc visit, void* arg) const {
    Py_VISIT(comm_.ptr());
    return 0;
}

// The ranks that wrote the checkpoint, and (name, rank, dtype, shape, bytes, data or None) of all tensors and items.
nb::tuple checkpoint_contents(const std::string& folder) {
    struct Entry {
        std::string name;
        int rank;
        weftDataType_t type;
        std::vector<size_t> shape;
        size_t bytes;
        bool is_item;
        std::string data;
    };
    std::vector<Entry> all;
    int ranks = 0;
    const auto add = [](const weftTrainStored_t* stored, void* context) {
        static_cast<std::vector<Entry>*>(context)->push_back(
            {stored->name,
             stored->rank,
             stored->datatype,
             {stored->shape, stored->shape + stored->dims},
             stored->bytes,
             stored->isItem != 0,
             stored->data ? std::string(static_cast<const char*>(stored->data), stored->bytes) : ""});
    };
    check(unlocked([&] { return weftTrainCheckpointList(folder.c_str(), add, &all, &ranks); }));
    nb::list entries;
    for (const Entry& each : all) {
        nb::list shape;
        for (const size_t length : each.shape) shape.append(length);
        entries.append(nb::make_tuple(
            each.name, each.rank, name_of(each.type), shape, each.bytes,
            each.is_item ? nb::object(nb::bytes(each.data.data(), each.data.size())) : nb::object(nb::none())));
    }
    return nb::make_tuple(ranks, entries);
}

void bind_checkpoint(nb::module_& module) {
    module.def("checkpoint_contents", &checkpoint_contents, nb::arg("folder"), InFrame());
    nb::class_<Checkpoint>(module, "Checkpoint", nb::type_slots(collected<Checkpoint>()), nb::is_weak_referenceable())
        .def(nb::init<nb::object>(), nb::arg("comm"), InFrame())
        .def("_save", &Checkpoint::save, InFrame())
        .def("_load", &Checkpoint::load, InFrame())
        .def("_test", &Checkpoint::test, InFrame())
        .def("_wait", &Checkpoint::wait, InFrame())
        .def("_ranks", &Checkpoint::ranks, InFrame())
        .def("_item", &Checkpoint::item, InFrame())
        .def("_export", &Checkpoint::export_file, InFrame())
        .def("_abort", &Checkpoint::abort, InFrame())
        .def("_close", &Checkpoint::close, InFrame());
}

}  // namespace weft::python
