// optimizer.hpp: SGD, Adam, AdamW, LAMB and LARS on this rank's parts of a model. docs/design/training.md explains them.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "src/train/flat_buffer.hpp"
#include "src/train/offload/offload_worker.hpp"
#include "src/train/optimizer/one_bit_lamb.hpp"
#include "src/train/optimizer/part_worker.hpp"
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
    bool bias_correction = true;
    OffloadRule offload = {};
    weftTrainCompressor_t compressor = nullptr;  // 1-bit LAMB: says which stage it is
    TrustRule trust_rule = {};
};

// Values, gradients and copies are the caller's memory; the moments belong to it, and are zero at first. All of it lies
// in the worker's space, except what is offloaded: the moments, and maybe the values.
// Thread-bound, also to the axes.
class Optimizer {
  public:
    static Result<std::shared_ptr<Optimizer>> make(const OptimizerRule& rule, std::vector<ModelPart> parts, Axes axes,
                                                   std::unique_ptr<PartWorker> worker);
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;

    // Whether a step may be made now: the gradients are those of all ranks.
    Status ready() const;
    // Each gradient is multiplied by `scale`. Parts without a gradient stay as they are; empty
    // ones count their steps.
    Status step(double learning_rate, double scale, weftStream_t stream);
    PartWorker& worker() const { return *worker_; }
    void set_gradient(int part, void* gradient) { parts_[size_t(part)].gradient = gradient; }
    int part_count() const { return int(parts_.size()); }
    size_t part_elements(int part) const { return parts_[size_t(part)].count; }
    // It waits for nothing at its end, and an exception leaves other ranks alone.
    Status settle() const { return ok(); }
    void end_by_exception() const noexcept {}

    // The number of arrays of part.count elements that the algorithm keeps for each part, and the name of each.
    // Offloaded values are the last one.
    int state_count() const { return moments_of(rule_) + (offload_ && rule_.offload.values ? 1 : 0); }
    const char* state_name(int state) const;
    bool offloads() const { return offload_ != nullptr; }
    // Null: it lies in a file.
    float* state(int part, int state) const;
    // Copies it to or from the caller's memory.
    Status read_state(int part, int state, float* to) const;
    Status write_state(int part, int state, const float* from);
    // The steps that the part has taken.
    uint64_t steps(int part) const { return steps_[size_t(part)]; }
    void set_steps(int part, uint64_t steps) { steps_[size_t(part)] = steps; }

    // 1-bit LAMB: of the part.
    bool has_trust() const { return rule_.algorithm == weftTrainOneBitLamb; }
    Trust& trust(int part) { return trusts_[size_t(part)]; }

  private:
    Optimizer(const OptimizerRule& rule, std::vector<ModelPart> parts, Axes axes, std::unique_ptr<PartWorker> worker)
        : rule_(rule),
          parts_(std::move(parts)),
          axes_(std::move(axes)),
          worker_(std::move(worker)),
          steps_(parts_.size(), 0),
          trusts_(parts_.size()) {}
    static int moments_of(const OptimizerRule& rule);
    Status allocate();
    Status offload();
    // The end of a step, of which a rank may have done a part.
    Status settle_offloaded(Status stepped);
    bool is_lamb() const { return rule_.algorithm == weftTrainLamb || has_trust(); }
    bool by_layer() const { return is_lamb() || rule_.algorithm == weftTrainLars; }
    // 1-bit LAMB: gradients are momentum.
    Status step_compressed(double learning_rate, double scale, weftStream_t stream);
    // The work of a step on one part, before its layer's ratio is known.
    PartTask task_of(size_t part, double learning_rate, double scale) const;
    // Puts the ratio of each layer into its task. `parts`: of the tasks.
    Status scale_layers(std::span<PartTask> tasks, std::span<const size_t> parts, double learning_rate, double scale,
                        weftStream_t stream);
    double ratio(size_t part, double weights, double update);

    OptimizerRule rule_;
    std::vector<ModelPart> parts_;
    Axes axes_;
    std::unique_ptr<PartWorker> worker_;
    std::vector<uint64_t> steps_;
    std::vector<Trust> trusts_;
    FlatBuffer memory_;                 // of all states; ends before the worker's space
    std::vector<size_t> offsets_;       // of each part's first state, in elements
    OffloadWorker* offload_ = nullptr;  // the worker, if states lie in a file
    Status broken_;                     // by a step that ended in the middle
    bool in_step_ = false;              // the last step has ended by an exception
};

}  // namespace weft::internal::train
