// gradient_norms.hpp: the norm of all gradients, clipping, and the loss scale of float16 training.
#pragma once
#include <span>

#include "src/train/optimizer/part_worker.hpp"

namespace weft::internal::train {

// The p-norm of all parts' gradients together: each sharded one summed over its axes, each replicated one counted once.
// p > 0, or infinite. NaN if a gradient is NaN.
Result<double> gradient_norm(PartWorker& worker, std::span<const ModelPart> parts, const Axes& axes, double p,
                             weftStream_t stream);
// Multiplies all gradients, in place.
Status scale_gradients(PartWorker& worker, std::span<const ModelPart> parts, double factor, weftStream_t stream);
Result<bool> gradients_finite(PartWorker& worker, std::span<const ModelPart> parts, weftStream_t stream);

// The factor by which clipping multiplies gradients, as in PyTorch.
double clip_coefficient(double norm, double max_norm);

// The factor of the loss. It falls after each step with an infinite gradient, and grows after many without one.
// The rule of PyTorch's GradScaler. A value.
class LossScale {
  public:
    struct Rule {
        double growth_factor = 2, backoff_factor = 0.5;
        int growth_interval = 2000;
        double least = 1;
    };
    LossScale(double scale, const Rule& rule) : rule_(rule), scale_(scale) {}

    double scale() const { return scale_; }
    int good_steps() const { return good_steps_; }  // since the last change
    void restore(double scale, int good_steps) {
        scale_ = scale;
        good_steps_ = good_steps;
        found_ = false;
    }
    void found(bool infinite) { found_ |= infinite; }
    bool found() const { return found_; }
    // Ends a step. An error if the scale would fall below the least one; it is the least one then.
    Status update();

  private:
    Rule rule_;
    double scale_;
    int good_steps_ = 0;
    bool found_ = false;  // in this step
};

// A loss scale, and the axes over which an infinite gradient counts. Thread-bound, also to the axes.
struct Scaler {
    LossScale scale;
    Axes axes;

    // It waits for nothing at its end, and an exception leaves other ranks alone.
    Status settle() const { return ok(); }
    void end_by_exception() const noexcept {}
};

}  // namespace weft::internal::train
