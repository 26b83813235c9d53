#include "python/binding/stream.hpp"

#include <unistd.h>

#include <cstring>
#include <set>
#include <utility>

#include "python/binding/bindings.hpp"
#include "python/binding/communicator.hpp"

namespace weft::python {

namespace {

constexpr int64_t slice_ms = 50;   // of a wait: Python's signal handlers run between slices
constexpr size_t many_calls = 32;  // above it, calls that are done are looked for

// The streams of the process. The GIL guards it. It is never destroyed, because objects may outlive the interpreter.
std::set<HostStream*>& all_streams() {
    static auto* const made = new std::set<HostStream*>;
    return *made;
}

// The address in an object of another library, or null if it is none of those.
nb::object address_of(nb::handle object) {
    if (nb::isinstance<nb::int_>(object)) return nb::borrow(object);
    nb::object protocol = nb::getattr(object, "__cuda_stream__", nb::none());
    if (!protocol.is_none()) return nb::object(protocol()[1]);
    for (const char* const attribute : {"cuda_stream", "ptr"}) {
        nb::object address = nb::getattr(object, attribute, nb::none());
        if (nb::isinstance<nb::int_>(address)) return address;
    }
    return nb::object();
}

}  // namespace

HostStream::HostStream(int priority) : process_(getpid()) {
    destroy_orphans();
    check(weftStreamCreateWithPriority(&handle_, priority));
    all_streams().insert(this);
}

HostStream::~HostStream() {
    all_streams().erase(this);
    if (!handle_ || process_ != getpid()) return;
    if (weftStreamTest(handle_, WEFT_STREAM_ALL) == weftInProgress)
        orphans().push_back({handle_, process_, std::move(calls_)});
    else
        destroy(handle_);
}

std::list<HostStream::Orphan>& HostStream::orphans() {
    static auto* const made = new std::list<Orphan>;
    return *made;
}

void HostStream::destroy(weftHostStream_t handle) {
    const Frame frame;
    (void)unlocked([handle] { return weftStreamDestroy(handle); });
}

void HostStream::destroy_orphans() {
    std::list<Orphan> ended;
    for (auto orphan = orphans().begin(); orphan != orphans().end();) {
        const auto each = orphan++;
        if (each->process == getpid() && weftStreamTest(each->handle, WEFT_STREAM_ALL) == weftInProgress) continue;
        ended.splice(ended.end(), orphans(), each);
    }
    for (const Orphan& orphan : ended)
        if (orphan.process == getpid()) destroy(orphan.handle);
}

void HostStream::end_all() {
    std::vector<std::pair<weftHostStream_t, std::deque<Call>*>> streams;
    for (HostStream* const each : all_streams())
        if (each->handle_ && each->process_ == getpid()) streams.emplace_back(each->handle_, &each->calls_);
    for (Orphan& each : orphans())
        if (each.process == getpid()) streams.emplace_back(each.handle, &each.calls);
    for (const auto& [handle, calls] : streams) {
        const weftResult_t result =
            unlocked([handle = handle] { return weftStreamWait(handle, WEFT_STREAM_ALL, 1000); });
        if (result == weftSuccess || weftStreamTest(handle, WEFT_STREAM_ALL) != weftInProgress) continue;
        std::vector<Comm*> comms;
        for (const Call& call : *calls) comms.push_back(&nb::cast<Comm&>(call.comm));
        const Unlocked gil_is_free;
        for (Comm* const comm : comms) comm->abort_quietly();
    }
}

weftStream_t HostStream::handle() const {
    if (!handle_) refuse_usage("python.closed", "the stream is closed. Make a new one by weft.Stream()");
    return handle_;
}

uint64_t HostStream::mark() const {
    uint64_t mark = 0;
    check(weftStreamMark(handle(), &mark));
    return mark;
}

void HostStream::raise_newest(weftResult_t result) {
    const Failure failure = Failure::newest(result);
    // The exception of a user's function belongs to the communicator of the call.
    for (const Call& call : calls_)
        if (Comm& comm = nb::cast<Comm&>(call.comm); comm.has_cause()) raise(comm.exception(failure));
    raise(failure, nb::handle());
}

void HostStream::raise_kept() {
    if (!error_.is_valid()) return;
    nb::object error;
    std::swap(error, error_);
    raise(error);
}

bool HostStream::done(uint64_t mark) {
    raise_kept();
    const weftResult_t result = weftStreamTest(handle(), mark);
    if (result == weftInProgress) return false;
    if (result != weftSuccess) raise_newest(result);
    forget_done();
    return true;
}

void HostStream::wait(uint64_t mark, int64_t timeout_ms) {
    raise_kept();
    const weftStream_t stream = handle();
    // All calls so far: later ones do not prolong the wait.
    if (mark == WEFT_STREAM_ALL) check(weftStreamMark(stream, &mark));
    for (int64_t waited = 0;;) {
        const bool last = timeout_ms >= 0 && timeout_ms - waited <= slice_ms;
        const int64_t slice = last ? timeout_ms - waited : slice_ms;
        const weftResult_t result = unlocked([&] { return weftStreamWait(stream, mark, slice); });
        if (result == weftSuccess) break;
        if (result != weftTimeout || last) raise_newest(result);
        // A call of the stream may have ended by weftTimeout, too.
        if (weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
            weftGetLastErrorInfo(nullptr, &info) == weftSuccess && !strcmp(info.id, "timeout.stream"))
            waited += slice;
        else
            raise_newest(result);
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    forget_done();
}

void HostStream::close() {
    if (!handle_) return;
    wait(WEFT_STREAM_ALL, -1);
    const weftHostStream_t stream = std::exchange(handle_, nullptr);
    const weftResult_t result = unlocked([stream] { return weftStreamDestroy(stream); });
    calls_.clear();
    check(result);
}

void HostStream::forget_done() {
    while (!calls_.empty()) {
        weftResult_t result = weftStreamTest(handle_, calls_.front().mark);
        if (result == weftInProgress) return;
        if (result != weftSuccess) {
            if (!error_.is_valid()) error_ = nb::cast<Comm&>(calls_.front().comm).exception(Failure::newest(result));
            continue;  // each error is returned once
        }
        calls_.pop_front();
    }
}

void HostStream::keep(Comm& comm, std::vector<Array> arrays) {
    calls_.push_back({mark(), comm.self_object(), std::move(arrays)});
    if (calls_.size() > many_calls) forget_done();
}

StreamArgument::StreamArgument(nb::handle given) {
    if (given.is_none()) return;
    if (nb::try_cast(given, host)) {
        object = nb::borrow(given);
        handle = host->handle();
        return;
    }
    const nb::object address = address_of(given);
    if (!address.is_valid())
        refuse("python.stream", std::string("stream is of type ") + Py_TYPE(given.ptr())->tp_name +
                                    ". Pass a weft.Stream for host memory, or the CUDA stream of torch, cupy or "
                                    "cuda.core, or its address");
    handle = reinterpret_cast<weftStream_t>(nb::cast<uintptr_t>(address));
}

void bind_stream(nb::module_& module) {
    module.attr("ALL") = uint64_t(WEFT_STREAM_ALL);
    nb::class_<HostStream>(module, "HostStream", nb::is_weak_referenceable())
        .def(nb::init<int>(), nb::arg("priority") = 0, InFrame())
        .def("_mark", &HostStream::mark, InFrame())
        .def("_done", &HostStream::done, InFrame())
        .def("_wait", &HostStream::wait, InFrame())
        .def("_close", &HostStream::close, InFrame());
}

}  // namespace weft::python
