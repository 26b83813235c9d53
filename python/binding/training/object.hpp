// object.hpp: the part that objects of weft.train share: their handle, their arrays, and calls on them.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <unistd.h>
#include <weft/train.h>

#include <string>
#include <utility>
#include <vector>

#include "python/binding/array.hpp"
#include "python/binding/bindings.hpp"
#include "python/binding/collector.hpp"
#include "python/binding/communicator.hpp"

namespace weft::python {

// Parameters as weft.h takes them, and the arrays that hold their memory. A name stays valid with its tuple.
struct TrainingArrays {
    std::vector<weftTrainTensor_t> tensors;
    std::vector<Array> arrays;

    // entries: (name, array, gradient or None)
    void read(const nb::list& entries) {
        for (nb::handle entry : entries) {
            if (!nb::isinstance<nb::tuple>(entry)) raise(entry);  // an exception of the Python part
            const auto parts = nb::cast<nb::tuple>(entry);
            weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
            tensor.name = PyUnicode_AsUTF8(parts[0].ptr());
            if (!tensor.name) throw nb::python_error();
            Array data(without_autograd(parts[1]), tensor.name, Access::write);
            tensor.data = data.data();
            tensor.count = data.count();
            tensor.datatype = data.type();
            if (!parts[2].is_none()) tensor.gradient = gradient(parts[2], tensor.name, data);
            arrays.push_back(std::move(data));
            tensors.push_back(tensor);
        }
    }

  private:
    void* gradient(nb::handle object, const char* parameter, const Array& data) {
        const std::string name = std::string("the gradient of ") + parameter;
        Array array(without_autograd(object), name.c_str(), Access::write);
        check_alike(data, parameter, array, name.c_str());
        check_count(array, name.c_str(), data.count(), "as many as its parameter");
        void* const memory = array.data();
        arrays.push_back(std::move(array));
        return memory;
    }
};

// Owns a handle of train.h. Needs the GIL, except abort_quietly().
template <class Handle>
class TrainingObject : public Interruptible {
  public:
    using Call = weftResult_t (*)(Handle);
    TrainingObject(nb::object comm, Call destroy, Call abort)
        : comm_(std::move(comm)), destroy_(destroy), abort_(abort), process_(getpid()) {}
    TrainingObject(const TrainingObject&) = delete;

    void abort() {
        check(unlocked([own = handle(), this] { return abort_(own); }));
    }
    void abort_quietly() noexcept override {
        if (const Handle own = handle_.load()) (void)abort_(own);
    }
    void close() {
        if (!handle_.load()) return;
        if (in_own_process()) run([this](Handle own) { return destroy_(own); });
        handle_.store(nullptr);
        arrays_.clear();
    }
    int visit(visitproc visit, void* arg) const {
        Py_VISIT(comm_.ptr());
        for (const Array& array : arrays_)
            if (const int stop = array.visit(visit, arg)) return stop;
        return 0;
    }
    // Fails if the object was closed.
    Handle handle() const {
        const Handle own = handle_.load(std::memory_order_relaxed);
        if (!own || closed_) refuse_usage("python.closed", "the object is closed. Make a new one");
        return own;
    }

  protected:
    ~TrainingObject() { end(!closed_); }
    // Accepts no further call; end() frees the object.
    void refuse_calls() { closed_ = true; }
    bool refuses_calls() const { return closed_; }
    bool in_own_process() const { return process_ == getpid(); }
    // Without an exception. aborts: other ranks may wait for this one.
    void end(bool aborts) {
        const Handle own = handle_.exchange(nullptr);
        if (!own || !in_own_process()) return;
        const Frame frame;
        const Unlocked gil_is_free;
        if (aborts) (void)abort_(own);
        (void)destroy_(own);
    }
    static void check(weftResult_t result) {
        if (result != weftSuccess) raise(Failure::newest(result), nb::object());
    }
    // Runs a call that may block.
    template <class Body>
    void run(Body&& body) {
        Interruptible* const objects[] = {this};
        check(without_gil(objects, [&, own = handle()] { return body(own); }));
    }
    // create(comm, handle*) makes the object. If `read` raises an exception, refuse(comm, handle*) fails: the other
    // ranks wait for this one, and get an error as well.
    template <class Read, class Create, class Refuse>
    void make(Read&& read, Create&& create, Refuse&& refuse) {
        Comm& own = nb::cast<Comm&>(comm_);
        Handle made = nullptr;
        try {
            read();
        } catch (...) {
            own.run([&](weftComm_t comm) {
                (void)refuse(comm, &made);
                return weftSuccess;
            });
            throw;
        }
        own.run([&](weftComm_t comm) { return create(comm, &made); });
        handle_.store(made);
    }

    nb::object comm_;
    std::vector<Array> arrays_;

  private:
    std::atomic<Handle> handle_{nullptr};
    Call destroy_, abort_;
    int process_;
    bool closed_ = false;
};

}  // namespace weft::python
