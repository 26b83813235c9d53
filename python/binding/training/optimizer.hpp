// optimizer.hpp: weft.train.Optimizer and Scaler, norms, statistics and samples.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/train.h>

#include <string>
#include <vector>

#include "python/binding/array.hpp"
#include "python/binding/communicator.hpp"

namespace weft::python {

// The communicators of a mesh, as arguments of a call. Keeps them.
class TrainAxes {
  public:
    explicit TrainAxes(const nb::list& comms);
    std::vector<weftComm_t> handles() const;
    // A call that may block on them: Ctrl-C aborts them. Raises its error.
    template <class Body>
    void run(Body&& body) const;
    int visit(visitproc visit, void* arg) const;

  private:
    std::vector<nb::object> objects_;
};

// Parts, as (name, values or None, copy or None, gradient or None, axes, dtype of later gradients or None), which may
// end before the dtype. Keeps their arrays.
class TrainParts {
  public:
    explicit TrainParts(const nb::list& entries);
    const weftTrainPart_t* data() const { return parts_.data(); }
    size_t size() const { return parts_.size(); }
    // Replaces a gradient, or drops it (None).
    void* set_gradient(size_t part, nb::handle gradient);
    size_t bytes_of_state(int part) const { return parts_[size_t(part)].count * sizeof(float); }
    bool on_device() const;
    int visit(visitproc visit, void* arg) const;
    void drop_values() { values_.clear(); }
    void clear();

  private:
    std::vector<weftTrainPart_t> parts_;
    std::vector<Array> values_, copies_, gradients_;
};

// Owns a weftTrainOptimizer_t. Needs the GIL.
class TrainOptimizer {
  public:
    TrainOptimizer(const nb::list& parts, const nb::list& axes, const nb::dict& settings, const nb::object& ddp,
                   const nb::object& shard, const nb::object& compressor);
    TrainOptimizer(const TrainOptimizer&) = delete;
    ~TrainOptimizer();

    // stream: None, or the CUDA stream of parts on a device.
    void step(double learning_rate, double gradient_scale, bool skip, nb::handle stream);
    void set_gradient(int part, nb::handle gradient);
    int state_count();
    std::pair<const char*, float*> state(int part, int number);
    // Copies to or from an array: states that lie in a file have no memory.
    const char* state_name(int number);
    void read_state(int part, int number, nb::handle to);
    void write_state(int part, int number, nb::handle from);
    uint64_t steps(int part);
    void set_steps(int part, uint64_t steps);
    nb::tuple trust(int part);
    void set_trust(int part, double trust, double factor);
    size_t bytes_of_state(int part) const { return parts_.bytes_of_state(part); }
    // Where the states lie.
    bool on_device() const { return on_device_; }
    void close();

    void add_view() { ++views_; }
    void drop_view() { --views_; }
    int visit(visitproc visit, void* arg) const;

  private:
    weftTrainOptimizer_t handle() const;

    TrainParts parts_;
    TrainAxes axes_;
    nb::object ddp_, shard_, compressor_;
    bool on_device_ = false;
    int views_ = 0;  // of its memory, which Python holds: it must not be freed
    weftTrainOptimizer_t handle_ = nullptr;
    int process_;
};

// Owns a weftTrainScaler_t. Needs the GIL.
class TrainScaler {
  public:
    TrainScaler(const nb::list& axes, const nb::dict& settings);
    TrainScaler(const TrainScaler&) = delete;
    ~TrainScaler();

    double scale();
    int good_steps();
    void restore(double scale, int good_steps);
    bool unscale(const nb::list& parts, bool divide, nb::handle stream);
    void update();
    void close();
    int visit(visitproc visit, void* arg) const { return axes_.visit(visit, arg); }

  private:
    weftTrainScaler_t handle() const;

    TrainAxes axes_;
    weftTrainScaler_t handle_ = nullptr;
    int process_;
};

void bind_training_optimizer(nb::module_& module);

}  // namespace weft::python
