// ddp.hpp: weft.train.Ddp and its gradients.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/train.h>

#include <string>
#include <vector>

#include "python/binding/array.hpp"
#include "python/binding/communicator.hpp"

namespace weft::python {

// Owns a weftTrainDdp_t, and keeps the arrays of the model. Needs the GIL, except abort_quietly().
class Ddp final : public Interruptible {
  public:
    // parameters: (name, array, gradient or None, rows). buffers: (name, array). hook: None, a name, a Compressor or a
    // function. If `refused` is an exception, this rank raises it in place of registering.
    Ddp(nb::object comm, const nb::list& parameters, const nb::list& buffers, nb::object hook, const nb::dict& settings,
        const nb::object& refused);
    Ddp(const Ddp&) = delete;
    ~Ddp();

    weftTrainDdp_t handle() const;
    // stream: None, or on a device the caller's CUDA stream.
    void begin(bool accumulate, nb::handle stream);
    void ready(int parameter, nb::handle stream);
    void ready_all(const std::vector<int>& parameters, nb::handle stream);
    void finish(nb::handle stream);
    void join(nb::handle stream);
    bool reduced();
    bool used(int parameter);
    int bucket(int parameter);
    int bucket_count();
    void zero_gradients(nb::handle stream);
    // The memory of a gradient; `self` is the object of Python.
    static nb::object gradient(const nb::object& self, int parameter);
    // Of each parameter: its device, or -1 for host memory, and the name of its dtype.
    nb::list facts() const;
    // The failure that has ended it, as an exception object, or None.
    nb::object async_error();
    void abort();
    void abort_quietly() noexcept override;
    void close();

    void add_view() { ++views_; }
    void drop_view() { --views_; }
    int visit(visitproc visit, void* arg) const;

  private:
    static weftResult_t call_hook(const weftTrainBucket_t* bucket, void* context);
    void set_hook(const nb::object& hook, weftTrainDdpConfig_t& config);
    // Runs a call that may block.
    template <class Body>
    void run(Body&& body);
    // Runs a report. In host memory it waits for no other rank, so Ctrl-C can wait for it. On a device it runs hooks,
    // whose first calls wait for the other ranks.
    template <class Body>
    void report(Body&& body);
    void check_result(weftResult_t result);
    void destroy() noexcept;

    struct Facts {
        size_t bytes;
        int device;
        weftDataType_t type;
    };

    nb::object comm_;
    std::vector<Array> arrays_;
    std::vector<Facts> parameters_;
    bool on_device_ = false;
    nb::object hook_;           // a function or a Compressor
    nb::object cause_;          // the exception of the hook
    PyObject* self_ = nullptr;  // Python's object, from the first begin() on. Not a reference
    int views_ = 0;             // of its memory, which Python holds: it must not be freed
    bool dying_ = false;        // no hook may refer to it any more. Guarded by the GIL
    std::atomic<weftTrainDdp_t> handle_{nullptr};
    int process_;
};

void bind_training(nb::module_& module);

}  // namespace weft::python
