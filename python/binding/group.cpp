#include "python/binding/group.hpp"

#include <unistd.h>

#include <string>
#include <utility>

#include "python/binding/bindings.hpp"
#include "python/binding/collector.hpp"
#include "python/binding/communicator.hpp"
#include "python/binding/stream.hpp"

namespace weft::python {

namespace {

thread_local OpenGroup* open = nullptr;

void add_once(std::vector<nb::object>& objects, nb::object object) {
    for (const nb::object& each : objects)
        if (each.is(object)) return;
    objects.push_back(std::move(object));
}

// A stream does not know which of the calls are its own, so it keeps the memory of all.
void pass_to_streams(const GroupContents& contents) {
    using Shared = std::shared_ptr<std::vector<Array>>;
    const nb::capsule owner(new Shared(contents.arrays),
                            [](void* shared) noexcept { delete static_cast<Shared*>(shared); });
    for (const nb::object& stream : contents.streams) {
        std::vector<Array> kept;
        kept.push_back(Array::keeping(owner));
        nb::cast<HostStream&>(stream).keep(nb::cast<Comm&>(contents.comms.front()), std::move(kept));
    }
}

// Runs the end of a group, or prepared calls. Streams keep the memory after an error, too: other calls were queued.
template <class Body>
void run_group(const GroupContents& contents, Body&& body) {
    const std::vector<Comm*> targets = contents.targets();
    weftResult_t result = weftSuccess;
    Failure failure;
    if (contents.streams.empty()) {
        result = without_gil(std::vector<Interruptible*>(targets.begin(), targets.end()), body);
        if (result != weftSuccess && result != weftInProgress) failure = Failure::newest(result);
    } else {
        result = unlocked(body);
        if (result != weftSuccess && result != weftInProgress) failure = Failure::newest(result);
        pass_to_streams(contents);
    }
    if (failure.code == weftSuccess) return;
    for (Comm* const comm : targets)
        if (comm->has_cause()) raise(comm->exception(failure));
    raise(failure, nb::handle());
}

// (number, exception) of each failed call of the group that this thread ended last.
nb::list errors() {
    nb::list found;
    uint64_t calls = 0;
    check(weftGroupGetCallCount(&calls));
    for (uint64_t call = 0; call < calls; ++call) {
        weftResult_t code = weftSuccess;
        const char* sentence = nullptr;
        check(weftGroupGetCallError(call, &code, &sentence));
        if (code == weftSuccess || code == weftInProgress) continue;
        Failure failure{code, sentence ? sentence : ""};
        // The id ends the sentence, in brackets.
        std::string id;
        if (const size_t begin = failure.sentence.rfind('['); begin != std::string::npos)
            id = failure.sentence.substr(begin + 1, failure.sentence.size() - begin - 2);
        failure.info.id = id.c_str();
        found.append(nb::make_tuple(call, exception_of(failure, nb::handle())));
    }
    return found;
}

}  // namespace

std::vector<Comm*> GroupContents::targets() const {
    std::vector<Comm*> found;
    for (const nb::object& comm : comms) found.push_back(&nb::cast<Comm&>(comm));
    return found;
}

int GroupContents::visit(visitproc visit, void* arg) const {
    for (const auto* const each : {&comms, &made, &streams})
        for (const nb::object& object : *each) Py_VISIT(object.ptr());
    // Otherwise a stream keeps them, too.
    if (arrays.use_count() == 1)
        for (const Array& array : *arrays)
            if (const int stop = array.visit(visit, arg)) return stop;
    return 0;
}

OpenGroup* OpenGroup::mine() { return open; }

void GroupContents::add(Comm& comm) {
    const size_t before = comms.size();
    add_once(comms, comm.self_object());
    if (comms.size() > before) arrays->push_back(Array::keeping(comms.back()));
}

void OpenGroup::keep(Comm& comm) { contents_.add(comm); }

void OpenGroup::keep_made(Comm& comm) { add_once(contents_.made, comm.self_object()); }

void OpenGroup::keep(Comm& comm, const StreamArgument& stream, std::vector<Array> arrays) {
    keep(comm);
    if (stream.host) add_once(contents_.streams, stream.object);
    for (Array& array : arrays) contents_.arrays->push_back(std::move(array));
}

void OpenGroup::start() {
    check(weftGroupStart());
    if (!open) open = new OpenGroup;
    ++open->depth_;
}

void OpenGroup::end() {
    if (!open) {
        check(weftGroupEnd());  // there is none: the library's error
        return;
    }
    if (--open->depth_ > 0) {
        check(weftGroupEnd());
        return;
    }
    const GroupContents contents = std::move(open->contents_);
    delete std::exchange(open, nullptr);
    run_group(contents, [] { return weftGroupEnd(); });
    for (const nb::object& comm : contents.made) nb::cast<Comm&>(comm).take();
}

void OpenGroup::discard() {
    if (!open) return;
    if (--open->depth_ > 0) {
        // The outermost group decides on the calls.
        check(weftGroupEnd());
        return;
    }
    const GroupContents contents = std::move(open->contents_);
    delete std::exchange(open, nullptr);
    weftPrepared_t prepared = nullptr;
    (void)weftGroupPrepare(&prepared);
    (void)weftPreparedDestroy(prepared);
}

PreparedCalls::PreparedCalls() : process_(getpid()) {
    if (!open || open->depth_ > 1) {
        OpenGroup::end();  // the outer groups stay open
        refuse_usage("python.group", "weft.prepare() must be the outermost group. Leave the other groups first");
    }
    contents_ = std::move(open->contents_);
    delete std::exchange(open, nullptr);
    check(weftGroupPrepare(&handle_));
}

PreparedCalls::~PreparedCalls() {
    if (!handle_ || process_ != getpid()) return;
    const Frame frame;
    const Unlocked unlocked;
    (void)weftPreparedDestroy(handle_);
}

void PreparedCalls::start() {
    if (!handle_) refuse_usage("python.closed", "the prepared calls are closed. Prepare them again");
    if (OpenGroup* const group = OpenGroup::mine()) {
        check(weftPreparedStart(handle_));
        for (const nb::object& comm : contents_.comms) group->keep(nb::cast<Comm&>(comm));
        for (const nb::object& stream : contents_.streams) add_once(group->contents_.streams, stream);
        group->contents_.arrays->push_back(Array::keeping(nb::find(this)));
        return;
    }
    run_group(contents_, [this] { return weftPreparedStart(handle_); });
}

void PreparedCalls::close() {
    if (!handle_) return;
    const weftPrepared_t prepared = std::exchange(handle_, nullptr);
    check(unlocked([prepared] { return weftPreparedDestroy(prepared); }));
}

void bind_group(nb::module_& module) {
    module.def("group_start", &OpenGroup::start, InFrame());
    module.def("group_end", &OpenGroup::end, InFrame());
    module.def("group_discard", &OpenGroup::discard, InFrame());
    module.def("group_errors", &errors, InFrame());
    nb::class_<PreparedCalls>(module, "PreparedCalls", nb::type_slots(collected<PreparedCalls>()))
        .def(nb::init<>(), InFrame())
        .def("_start", &PreparedCalls::start, InFrame())
        .def("_close", &PreparedCalls::close, InFrame());
}

}  // namespace weft::python
