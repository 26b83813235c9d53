#include "python/binding/training/bucket.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>

#include "python/binding/bindings.hpp"
#include "python/binding/memory_view.hpp"
#include "python/binding/training/compressor.hpp"
#include "python/binding/training/ddp.hpp"

namespace weft::python {

const weftTrainBucket_t& Bucket::get() const {
    if (!bucket_)
        refuse_usage("python.closed", "the bucket is used after its hook. Copy what is needed later, in the hook");
    return *bucket_;
}

nb::object Bucket::memory_of(void* data, size_t bytes) const {
    return get().stream ? MemoryView<Ddp, true>::make(owner_, data, bytes) : MemoryView<Ddp>::make(owner_, data, bytes);
}

nb::object Bucket::memory() const {
    const weftTrainBucket_t& bucket = get();
    return memory_of(bucket.data, bucket.count * bytes_of(bucket.datatype));
}

nb::object Bucket::stream() const {
    if (!get().stream) return nb::none();
    return nb::int_(reinterpret_cast<uintptr_t>(get().stream));
}

void Bucket::average(const std::string& sent_as) const {
    const weftTrainBucket_t& bucket = get();
    weftResult_t result = weftInvalidArgument;
    if (sent_as.empty())
        result = unlocked([&] { return weftTrainHookAverage(&bucket, nullptr); });
    else if (sent_as == "float16")
        result = unlocked([&] { return weftTrainHookFloat16(&bucket, nullptr); });
    else if (sent_as == "bfloat16")
        result = unlocked([&] { return weftTrainHookBfloat16(&bucket, nullptr); });
    else
        refuse("python.value", "sent_as is " + sent_as + "; it must be float16, bfloat16 or None");
    check(result);
}

void Bucket::compress(const Compressor& compressor) const {
    const weftTrainBucket_t& bucket = get();
    check(unlocked([&] { return weftTrainHookCompress(&bucket, compressor.handle()); }));
}

nb::object Bucket::scratch(size_t bytes) {
    void* data = nullptr;
    check(weftTrainBucketScratch(&get(), bytes, &data));
    nb::object memory = memory_of(data, bytes);
    if (get().stream) return views_.emplace_back(std::move(memory), nb::object()).first;
    nb::object view = nb::steal(PyMemoryView_FromObject(memory.ptr()));
    if (!view.is_valid()) throw nb::python_error();
    views_.emplace_back(std::move(memory), view);
    return view;
}

bool Bucket::end() {
    bucket_ = nullptr;
    bool released = true;
    for (const auto& [memory, view] : std::exchange(views_, {})) {
        if (view.is_valid() && !nb::steal(PyObject_CallMethod(view.ptr(), "release", nullptr)).is_valid())
            PyErr_Clear();
        // An array has a reference of its own, which keeps the memory and the Ddp.
        released &= Py_REFCNT(memory.ptr()) == 1;
    }
    return released;
}

void bind_bucket(nb::module_& module) {
    nb::class_<Bucket>(module, "TrainBucket", nb::is_weak_referenceable())
        .def_prop_ro("index", [](const Bucket& bucket) { return bucket.get().index; })
        .def_prop_ro("divisor", [](const Bucket& bucket) { return bucket.get().divisor; })
        .def_prop_ro("layout", [](const Bucket& bucket) { return bucket.get().layout; })
        .def_prop_ro("dtype", [](const Bucket& bucket) { return name_of(bucket.get().datatype); })
        .def_prop_ro("parameters", &Bucket::parameters)
        .def_prop_ro("offsets", &Bucket::offsets)
        .def_prop_ro("memory", &Bucket::memory)
        .def_prop_ro("stream", &Bucket::stream)
        .def("average", &Bucket::average, InFrame())
        .def("compress", &Bucket::compress, InFrame())
        .def("scratch", &Bucket::scratch, InFrame())
        .def(
            "borrow_comm", [](const Bucket& bucket, Comm& comm) { comm.borrow(bucket.get().comm); }, InFrame());
    module.def("give_back", [](Comm& comm) { comm.give_back(); });
}

}  // namespace weft::python
