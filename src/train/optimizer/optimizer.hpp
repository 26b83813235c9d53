// optimizer.hpp: SGD, Adam, AdamW, LAMB and LARS on this rank's parts of a model. docs/design/training.md explains them.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "src/train/flat_buffer.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/optimizer/parts.hpp"
#include "weft/train.h"

namespace weft::internal::train {

struct OptimizerRule {
    weftTrainAlgorithm_t algorithm = weftTrainSgd;
    double momentum = 0, dampening = 0;
    bool nesterov = false;
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    double weight_decay = 0;
    double trust = 0.001;  // LARS
    // Where the gradients come from, or null: a step needs those of all ranks.
    weftTrainDdp_t ddp = nullptr;
    weftTrainShard_t shard = nullptr;
};

// Values, gradients and copies are the caller's memory; the moments belong to it, and are zero at first.
// Thread-bound, also to the axes.
class Optimizer {
  public:
    static Result<std::shared_ptr<Optimizer>> make(const OptimizerRule& rule, std::vector<ModelPart> parts, Axes axes);
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;

    // Whether a step may be made now: the gradients are those of all ranks.
    Status ready() const;
    // Each gradient is multiplied by `scale`. Parts without a gradient stay as they are; empty
    // ones count their steps.
    Status step(double learning_rate, double scale);
    void set_gradient(int part, void* gradient) { parts_[size_t(part)].gradient = gradient; }
    int part_count() const { return int(parts_.size()); }
    // It waits for nothing at its end, and an exception leaves other ranks alone.
    Status settle() const { return ok(); }
    void end_by_exception() const noexcept {}

    // The number of arrays of part.count elements that the algorithm keeps for each part, and the name of each.
    int state_count() const { return states_of(rule_); }
    const char* state_name(int state) const;
    float* state(int part, int state) const;
    // The steps that the part has taken.
    uint64_t steps(int part) const { return steps_[size_t(part)]; }
    void set_steps(int part, uint64_t steps) { steps_[size_t(part)] = steps; }

  private:
    Optimizer(const OptimizerRule& rule, std::vector<ModelPart> parts, Axes axes)
        : rule_(rule), parts_(std::move(parts)), axes_(std::move(axes)), steps_(parts_.size(), 0) {}
    static int states_of(const OptimizerRule& rule);
    bool by_layer() const { return rule_.algorithm == weftTrainLamb || rule_.algorithm == weftTrainLars; }
    // For each layer: the squared norms of its weights and of its update, over all axes.
    Status layer_norms(double scale, std::vector<double>& squares);
    void add_layer_squares(size_t part, double scale, double squares[2]);
    double ratio(double weights, double update) const;
    void step_sgd(size_t part, double learning_rate, double scale, double ratio);
    void step_adam(size_t part, double learning_rate, double scale, double ratio);
    // Rounds the new values of a block to the part's copy.
    static void write_copy(const ModelPart& part, size_t first, size_t count);

    OptimizerRule rule_;
    std::vector<ModelPart> parts_;
    Axes axes_;
    std::vector<uint64_t> steps_;
    std::unique_ptr<MemorySpace> space_ = host_space();
    FlatBuffer memory_;            // of all states; ends before its space
    std::vector<size_t> offsets_;  // of each part's first state, in elements
};

}  // namespace weft::internal::train
