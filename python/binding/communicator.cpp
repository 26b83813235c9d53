#include "python/binding/communicator.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "python/binding/bindings.hpp"
#include "python/binding/group.hpp"
#include "python/binding/joining.hpp"
#include "python/binding/stream.hpp"

namespace weft::python {

namespace {

// The communicators of the process. The GIL guards it. It is never destroyed, because objects may outlive the
// interpreter.
std::set<Comm*>& all_communicators() {
    static auto* const made = new std::set<Comm*>;
    return *made;
}

// weft.init's settings as weftConfig_t. The strings live as long as this object.
class Config {
  public:
    explicit Config(const nb::dict& settings) {
        for (const auto& [key, value] : settings) {
            if (value.is_none()) continue;
            const auto name = nb::cast<std::string>(key);
            if (name == "timeout_ms") config_.timeoutMs = nb::cast<int64_t>(value);
            if (name == "init_timeout_ms") config_.initTimeoutMs = nb::cast<int64_t>(value);
            if (name == "deterministic") config_.deterministic = nb::cast<bool>(value) ? 1 : 0;
            if (name == "device") config_.device = nb::cast<int>(value);
            if (name == "min_blocks") config_.minBlocks = nb::cast<int>(value);
            if (name == "max_blocks") config_.maxBlocks = nb::cast<int>(value);
            if (name == "block_policy") config_.blockPolicy = nb::cast<int>(value);
            if (name == "launch_order_implicit") config_.launchOrderImplicit = nb::cast<bool>(value) ? 1 : 0;
            if (name == "name") name_ = nb::cast<std::string>(value);
            if (name == "algo") algo_ = nb::cast<std::string>(value);
        }
    }
    const weftConfig_t* get() {
        config_.commName = name_.empty() ? nullptr : name_.c_str();
        config_.algo = algo_.empty() ? nullptr : algo_.c_str();
        return &config_;
    }

  private:
    weftConfig_t config_ = WEFT_CONFIG_INITIALIZER;
    std::string name_, algo_;
};

// A call that makes communicators without a parent: `make` gets the places of their handles. In a group it is queued.
template <class Make>
void join(const std::vector<Comm*>& comms, Make make) {
    if (OpenGroup* const group = OpenGroup::mine()) {
        std::vector<weftComm_t*> places;
        for (Comm* const comm : comms) places.push_back(comm->place());
        check(make(places.data()));
        for (Comm* const comm : comms) group->keep_made(*comm);
        return;
    }
    const std::vector<weftComm_t> handles = join_interruptibly(comms.size(), make);
    for (size_t i = 0; i < comms.size(); ++i) {
        *comms[i]->place() = handles[i];
        comms[i]->take();
    }
}

weftUniqueId id_of(const nb::bytes& bytes) {
    weftUniqueId id;
    if (bytes.size() != sizeof id.internal)
        refuse("python.unique-id", "the unique id has " + std::to_string(bytes.size()) + " bytes; it must have " +
                                       std::to_string(sizeof id.internal) + ", as weft.unique_id() returns them");
    memcpy(id.internal, bytes.c_str(), sizeof id.internal);
    return id;
}

nb::bytes unique_id() {
    weftUniqueId id;
    check(weftGetUniqueId(&id));
    return nb::bytes(id.internal, sizeof id.internal);
}

void init_from_environment(Comm& comm, const nb::dict& settings) {
    const auto config = std::make_shared<Config>(settings);
    join({&comm}, [config](weftComm_t** places) { return weftCommInitFromEnvironment(places[0], config->get()); });
}

void init_rank(Comm& comm, int size, const nb::bytes& id, int rank, const nb::dict& settings) {
    const auto config = std::make_shared<Config>(settings);
    join({&comm}, [config, size, rank, id = id_of(id)](weftComm_t** places) {
        return weftCommInitRankConfig(places[0], size, id, rank, config->get());
    });
}

void init_all(const std::vector<Comm*>& comms, const std::optional<std::vector<int>>& devices) {
    if (OpenGroup::mine())
        refuse_usage("python.group", "weft.init_all is not possible in weft.group(). Call it before the group");
    if (devices && devices->size() != comms.size())
        refuse("python.size", "devices has " + std::to_string(devices->size()) + " numbers for " +
                                  std::to_string(comms.size()) + " ranks. Give one for each rank");
    join(comms, [devices, count = int(comms.size())](weftComm_t** places) {
        std::vector<weftComm_t> handles(size_t(std::max(count, 1)));
        const weftResult_t result = weftCommInitAll(handles.data(), count, devices ? devices->data() : nullptr);
        for (int i = 0; i < count; ++i) *places[i] = handles[size_t(i)];
        return result;
    });
}

// Split and shrink.
template <class Make>
void derive(Comm& parent, Comm& child, Make make) {
    if (OpenGroup* const group = OpenGroup::mine()) {
        parent.check(make());
        group->keep(parent);
        group->keep_made(child);
        return;
    }
    Interruptible* const parents[] = {&parent};
    const weftResult_t result = without_gil(parents, make);
    parent.check(result);
    child.take();
}

void split(Comm& parent, Comm& child, int color, int key, const nb::dict& settings) {
    Config config(settings);
    derive(parent, child,
           [&, comm = parent.handle()] { return weftCommSplit(comm, color, key, child.place(), config.get()); });
}

void shrink(Comm& parent, Comm& child, std::vector<int> excluded, bool abort, const nb::dict& settings) {
    Config config(settings);
    derive(parent, child, [&, comm = parent.handle()] {
        return weftCommShrink(comm, excluded.data(), int(excluded.size()), child.place(), config.get(),
                              abort ? WEFT_SHRINK_ABORT : WEFT_SHRINK_DEFAULT);
    });
}

void finalize(Comm& comm) {
    comm.run([](weftComm_t handle) { return weftCommFinalize(handle); });
}

// The error that has hit the communicator as an exception object, or None.
nb::object async_error(Comm& comm) {
    weftResult_t state = weftSuccess;
    comm.check(weftCommGetAsyncError(comm.handle(), &state));
    if (state == weftSuccess || state == weftInProgress) return nb::none();
    Failure failure{state, weftGetLastError(comm.handle())};
    (void)weftGetLastErrorInfo(comm.handle(), &failure.info);
    return comm.exception(failure);
}

void set_call_config(Comm& comm, const nb::dict& settings) {
    weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
    std::string algo;
    bool any = false;
    for (const auto& [key, value] : settings) {
        if (value.is_none()) continue;
        any = true;
        const auto name = nb::cast<std::string>(key);
        if (name == "timeout_ms") config.timeoutMs = nb::cast<int64_t>(value);
        if (name == "channels") config.channels = nb::cast<int>(value);
        if (name == "priority") config.priority = nb::cast<int>(value);
        if (name == "min_blocks") config.minBlocks = nb::cast<int>(value);
        if (name == "max_blocks") config.maxBlocks = nb::cast<int>(value);
        if (name == "block_policy") config.blockPolicy = nb::cast<int>(value);
        if (name == "algo") algo = nb::cast<std::string>(value);
    }
    config.algo = algo.empty() ? nullptr : algo.c_str();
    comm.run([&](weftComm_t handle) { return weftCommSetCallConfig(handle, any ? &config : nullptr); });
}

int device(Comm& comm) {
    int number = 0;
    comm.run([&](weftComm_t handle) { return weftCommCuDevice(handle, &number); });
    return number;
}

uint64_t memory_bytes(Comm& comm, int kind) {
    uint64_t bytes = 0;
    comm.run([&](weftComm_t handle) { return weftCommMemStats(handle, weftMemStat_t(kind), &bytes); });
    return bytes;
}

std::string explain(Comm& comm, const std::string& collective, size_t count, nb::handle dtype, int op, int root) {
    const weftDataType_t type = type_named(dtype);
    const auto write = [&](char* text, size_t capacity, size_t* needed) {
        comm.run([&](weftComm_t handle) {
            return weftCommExplainCollective(handle, collective.c_str(), count, type, weftRedOp_t(op), root, text,
                                             capacity, needed);
        });
    };
    size_t needed = 0;
    write(nullptr, 0, &needed);
    std::string text(needed, '\0');
    write(text.data(), text.size(), nullptr);
    text.resize(strlen(text.c_str()));
    return text;
}

}  // namespace

Comm::Comm() : process_(getpid()) { all_communicators().insert(this); }

Comm::~Comm() {
    all_communicators().erase(this);
    destroy();
}

bool Comm::is_inherited() const { return process_ != getpid(); }

void Comm::refuse_closed() {
    refuse_usage("python.closed",
                 "the communicator is closed, was aborted, or is made by a group that is still open. Make a new one by "
                 "weft.init(), or leave the group first");
}

void Comm::take() {
    handle_.store(made_);
    if (!made_) return;
    check(weftCommUserRank(made_, &rank_));
    check(weftCommCount(made_, &size_));
}

void Comm::borrow(weftComm_t comm) {
    made_ = comm;
    take();
}

int Comm::rank() {
    if (rank_ < 0) (void)handle();
    return rank_;
}

int Comm::size() {
    if (size_ < 0) (void)handle();
    return size_;
}

void Comm::destroy() noexcept {
    const weftComm_t comm = handle_.exchange(nullptr);
    if (!comm || is_inherited()) return;
    // Calls in streams may need the GIL for a user's function.
    const Frame frame;
    const Unlocked unlocked;
    (void)weftCommDestroy(comm);
}

void Comm::close() {
    const weftComm_t comm = handle_.load();
    if (!comm) return;
    if (is_inherited()) {
        handle_.store(nullptr);
        return;
    }
    // It waits for calls in streams.
    Interruptible* const comms[] = {this};
    check(without_gil(comms, [comm] { return weftCommDestroy(comm); }));
    handle_.store(nullptr);
    kept_.clear();
}

void Comm::abort() {
    const weftComm_t comm = handle_.exchange(nullptr);
    if (!comm) return;
    check(unlocked([comm] { return weftCommAbort(comm); }));
}

void Comm::abort_quietly() noexcept {
    if (const weftComm_t comm = handle_.exchange(nullptr)) (void)weftCommAbort(comm);
}

nb::object Comm::exception(const Failure& failure) {
    // KeyboardInterrupt and SystemExit end programs: they stay as they are.
    const bool ends_program = cause_.is_valid() && PyObject_IsInstance(cause_.ptr(), PyExc_Exception) == 0;
    nb::object cause;
    if (ends_program || !strcmp(failure.info.id, "usage.function-threw")) std::swap(cause, cause_);
    return ends_program ? cause : exception_of(failure, cause);
}

void Comm::raise_newest(weftResult_t result) { raise(exception(Failure::newest(result))); }

void end_all_communicators() {
    std::set<Comm*> comms;
    {
        const Frame frame;
        HostStream::end_all();
        comms = all_communicators();
        std::vector<Comm*> busy;
        for (Comm* const comm : comms) {
            if (comm->inside.load() == 0 || comm->is_inherited()) continue;
            busy.push_back(comm);
            comm->abort_quietly();
        }
        // The threads need the GIL to leave.
        const Unlocked unlocked;
        const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        for (Comm* const comm : busy)
            while (comm->inside.load() != 0 && std::chrono::steady_clock::now() < last)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    end_gil();
    const Frame frame;
    for (Comm* const comm : comms)
        if (all_communicators().count(comm)) {
            try {
                comm->close();
            } catch (nb::python_error&) {
                comm->abort_quietly();
            }
        }
}

void bind_communicator(nb::module_& module) {
    nb::class_<Comm>(module, "Comm", nb::is_weak_referenceable(), nb::dynamic_attr())
        .def(nb::init<>(), InFrame())
        .def_prop_ro("_rank", &Comm::rank, InFrame())
        .def_prop_ro("_size", &Comm::size, InFrame())
        .def_prop_ro("_open", &Comm::is_open, InFrame())
        .def("_close", &Comm::close, InFrame())
        .def("_abort", &Comm::abort, InFrame())
        .def("_init_from_environment", &init_from_environment, InFrame())
        .def("_init_rank", &init_rank, InFrame())
        .def("_split", &split, InFrame())
        .def("_shrink", &shrink, InFrame())
        .def("_finalize", &finalize, InFrame())
        .def("_async_error", &async_error, InFrame())
        .def("_set_call_config", &set_call_config, InFrame())
        .def("_memory_bytes", &memory_bytes, InFrame())
        .def("_device", &device, InFrame())
        .def("_explain", &explain, InFrame());
    module.def("init_all", &init_all, nb::arg("comms"), nb::arg("devices").none(), InFrame());
    module.def("unique_id", &unique_id, InFrame());
    module.def("end_all", &end_all_communicators);
}

}  // namespace weft::python
