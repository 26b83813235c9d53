#include "src/train/optimizer/optimizer.hpp"

#include <cmath>

#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

bool has_momentum(const OptimizerRule& rule) {
    return (rule.algorithm == weftTrainSgd || rule.algorithm == weftTrainLars) && rule.momentum != 0;
}
bool has_moments(const OptimizerRule& rule) {
    return rule.algorithm == weftTrainAdam || rule.algorithm == weftTrainAdamW || rule.algorithm == weftTrainLamb ||
           rule.algorithm == weftTrainOneBitLamb;
}

// Each state begins on a cache line of its own.
size_t whole_lines(size_t elements) { return (elements + 15) / 16 * 16; }

AdamStep adam_step_of(const OptimizerRule& rule, uint64_t steps, double learning_rate, double scale) {
    const bool lamb = rule.algorithm == weftTrainLamb || rule.algorithm == weftTrainOneBitLamb;
    const bool shrinks = rule.algorithm == weftTrainAdamW;
    const double done = double(steps + 1);
    const auto unbiased = [&](double beta) { return rule.bias_correction ? 1 / (1 - std::pow(beta, done)) : 1; };
    const double unbias = unbiased(rule.beta1);
    AdamStep step;
    step.scale = float(scale);
    step.decay = shrinks ? 0 : float(rule.weight_decay);
    step.shrink = shrinks ? float(1 - learning_rate * rule.weight_decay) : 1;
    step.mix1 = float(1 - rule.beta1);
    step.beta2 = float(rule.beta2);
    step.mix2 = float(1 - rule.beta2);
    step.rate = float(lamb ? unbias : learning_rate * unbias);
    step.root_scale = float(std::sqrt(unbiased(rule.beta2)));
    step.epsilon = float(rule.epsilon);
    return step;
}

SgdStep sgd_step_of(const OptimizerRule& rule, uint64_t steps, double learning_rate, double scale, double ratio) {
    SgdStep step;
    step.scale = float(ratio * scale);
    step.decay = float(ratio * rule.weight_decay);
    step.momentum = float(rule.momentum);
    // The first gradient becomes the momentum.
    step.damping = steps == 0 ? 1 : float(1 - rule.dampening);
    step.rate = float(learning_rate);
    step.nesterov = rule.nesterov;
    return step;
}

}  // namespace

Result<std::shared_ptr<Optimizer>> Optimizer::make(const OptimizerRule& rule, std::vector<ModelPart> parts, Axes axes,
                                                   std::unique_ptr<PartWorker> worker) {
    std::shared_ptr<Optimizer> made(new Optimizer(rule, std::move(parts), std::move(axes), std::move(worker)));
    WEFT_TRY(rule.offload.folder.empty() ? made->allocate() : made->offload());
    return made;
}

Status Optimizer::allocate() {
    size_t elements = 0;
    for (const ModelPart& part : parts_) {
        offsets_.push_back(elements);
        elements += size_t(state_count()) * whole_lines(part.count);
    }
    auto memory = FlatBuffer::allocate(worker_->space(), elements * sizeof(float));
    if (!memory) return memory.take_status();
    memory_ = std::move(*memory);
    return worker_->space().synchronize();  // the caller's streams use it
}

Status Optimizer::offload() {
    const int moments = moments_of(rule_), arrays = moments + (rule_.offload.values ? 1 : 0);
    if (arrays == 0) return ok();  // SGD without momentum keeps nothing
    std::vector<size_t> counts;
    for (const ModelPart& part : parts_) counts.push_back(part.count);
    auto states = OffloadedStates::make(rule_.offload, counts, arrays);
    if (!states) return states.take_status();
    auto worker =
        std::make_unique<OffloadWorker>(std::move(worker_), std::move(*states), moments, rule_.offload.values);
    offload_ = worker.get();
    worker_ = std::move(worker);
    offload_->set_parts(parts_);
    if (!rule_.offload.values) return ok();
    WEFT_TRY(offload_->write_values());
    for (ModelPart& part : parts_) part.values = nullptr;  // the caller may free them
    return ok();
}

int Optimizer::moments_of(const OptimizerRule& rule) {
    if (rule.algorithm == weftTrainOneBitLamb) return 3;
    return has_moments(rule) ? 2 : has_momentum(rule) ? 1 : 0;
}

// PyTorch's names, so that checkpoints of both look alike.
const char* Optimizer::state_name(int state) const {
    if (state == moments_of(rule_)) return "values";
    if (!has_moments(rule_)) return "momentum_buffer";
    return state == 0 ? "exp_avg" : state == 1 ? "exp_avg_sq" : "exp_avg_sq_fresh";
}

float* Optimizer::state(int part, int state) const {
    if (offload_) return nullptr;
    const size_t offset = offsets_[size_t(part)] + size_t(state) * whole_lines(parts_[size_t(part)].count);
    return reinterpret_cast<float*>(memory_.data()) + offset;
}

Status Optimizer::read_state(int part, int state, float* to) const {
    if (offload_) return offload_->read(size_t(part), state, to);
    WEFT_TRY(worker_->space().copy(to, this->state(part, state), parts_[size_t(part)].count * sizeof(float)));
    return worker_->space().synchronize();
}

Status Optimizer::write_state(int part, int state, const float* from) {
    if (offload_) return offload_->write(size_t(part), state, from);
    WEFT_TRY(worker_->space().copy(this->state(part, state), from, parts_[size_t(part)].count * sizeof(float)));
    return worker_->space().synchronize();
}

Status Optimizer::ready() const {
    if (in_step_)
        return fail(
            error::train_offload,
            "a step before has ended by an exception, so parts of the model have changed and others not: make a "
            "new optimizer, and load a checkpoint");
    if (!broken_)
        return fail(broken_,
                    "a step before has failed, so parts of the model have changed and others not: make a new "
                    "optimizer, and load a checkpoint. Its reason: {}",
                    broken_.sentence());
    int reduced = 1;
    if (rule_.ddp) WEFT_TRY(called(weftTrainDdpGetReduced(rule_.ddp, &reduced)));
    if (!reduced)
        return fail(error::train_step,
                    "the gradients of config.ddp are not averages now: make the step after weftTrainDdpFinish of an "
                    "iteration that synchronises");
    if (rule_.shard) WEFT_TRY(called(weftTrainShardGetReduced(rule_.shard, &reduced)));
    if (!reduced)
        return fail(error::train_step,
                    "the gradients of config.shard are not reduced over all ranks now: make the step after "
                    "weftTrainShardFinish of an iteration whose reductions synchronise");
    return ok();
}

Status Optimizer::step(double learning_rate, double scale, weftStream_t stream) {
    int compressed = 0;
    if (has_trust()) WEFT_TRY(called(weftTrainCompressorGetCompressed(rule_.compressor, &compressed)));
    if (compressed) return step_compressed(learning_rate, scale, stream);
    std::vector<PartTask> tasks;
    std::vector<size_t> parts;
    for (size_t p = 0; p < parts_.size(); ++p) {
        // Empty parts take part: they may have no memory.
        if (!parts_[p].gradient && parts_[p].count > 0) continue;
        tasks.push_back(task_of(p, learning_rate, scale));
        parts.push_back(p);
    }
    if (by_layer()) WEFT_TRY(scale_layers(tasks, parts, learning_rate, scale, stream));
    const PartWork step = !has_moments(rule_) ? PartWork::sgd : is_lamb() ? PartWork::lamb : PartWork::adam;
    in_step_ = offload_ != nullptr;
    Status stepped = worker_->run(step, tasks, stream);
    if (offload_) stepped = settle_offloaded(std::move(stepped));
    WEFT_TRY(std::move(stepped));
    for (const size_t p : parts) ++steps_[p];
    return ok();
}

Status Optimizer::settle_offloaded(Status stepped) {
    broken_ = axes_.agree(std::move(stepped));
    in_step_ = false;
    return broken_.copy();
}

Status Optimizer::step_compressed(double learning_rate, double scale, weftStream_t stream) {
    FrozenStep step{float(scale), float(rule_.beta1), float(rule_.beta2), float(rule_.epsilon),
                    float(rule_.weight_decay)};
    std::vector<PartTask> tasks;
    std::vector<size_t> parts;
    for (size_t p = 0; p < parts_.size(); ++p) {
        if (!parts_[p].gradient && parts_[p].count > 0) continue;
        PartTask task{&parts_[p], state(int(p), 0), state(int(p), 1)};
        task.fresh = state(int(p), 2);
        step.first = trusts_[p].factor == 0 ? 1 : 0;
        task.frozen = step;
        tasks.push_back(task);
        parts.push_back(p);
    }
    const auto sums = worker_->sums(PartWork::frozen_norms, tasks, 2, stream);
    if (!sums) return sums.status().copy();
    for (size_t i = 0; i < tasks.size(); ++i) {
        Trust& trust = trusts_[parts[i]];
        if (trust.factor == 0) trust.factor = 1;
        if (parts_[parts[i]].count > 0)
            trust.factor = frozen_factor(rule_.trust_rule, rule_.weight_decay, (*sums)[i], trust.factor);
        tasks[i].factor = float(learning_rate * (trust.mean > 0 ? trust.mean : 1) * trust.factor);
    }
    WEFT_TRY(worker_->run(PartWork::frozen, tasks, stream));
    for (const size_t p : parts) ++steps_[p];
    return ok();
}

PartTask Optimizer::task_of(size_t p, double learning_rate, double scale) const {
    PartTask task{&parts_[p]};
    if (has_moments(rule_)) {
        task.first = state(int(p), 0);
        task.second = state(int(p), 1);
        task.adam = adam_step_of(rule_, steps_[p], learning_rate, scale);
    } else {
        task.first = has_momentum(rule_) ? state(int(p), 0) : nullptr;
        task.sgd = sgd_step_of(rule_, steps_[p], learning_rate, scale, 1);
    }
    return task;
}

// All ranks send two numbers of each part, also of parts without a gradient.
Status Optimizer::scale_layers(std::span<PartTask> tasks, std::span<const size_t> parts, double learning_rate,
                               double scale, weftStream_t stream) {
    const bool lamb = is_lamb();
    auto own = worker_->sums(lamb ? PartWork::lamb_norms : PartWork::layer_norms, tasks, 2, stream);
    if (offload_) WEFT_TRY(axes_.agree(own.status().copy()));  // nothing has changed
    if (!own) return own.take_status();
    std::vector<double> squares(2 * parts_.size(), 0);
    std::vector<uint32_t> masks;
    for (const ModelPart& part : parts_) masks.insert(masks.end(), 2, part.axes);
    for (size_t i = 0; i < tasks.size(); ++i) {
        squares[2 * parts[i]] = (*own)[i].first;
        squares[2 * parts[i] + 1] = (*own)[i].second * (lamb ? 1 : scale * scale);
    }
    WEFT_TRY(axes_.reduce(squares, masks, weftSum));
    for (size_t i = 0; i < tasks.size(); ++i) {
        const size_t p = parts[i];
        const double of_layer = ratio(p, std::sqrt(squares[2 * p]), std::sqrt(squares[2 * p + 1]));
        tasks[i].factor = float(learning_rate * of_layer);
        if (!lamb) tasks[i].sgd = sgd_step_of(rule_, steps_[p], learning_rate, scale, of_layer);
    }
    return ok();
}

double Optimizer::ratio(size_t part, double weights, double update) {
    if (weights == 0 || update == 0) return 1;
    if (has_trust()) return warm_ratio(rule_.trust_rule, weights / update, trusts_[part]);
    if (rule_.algorithm == weftTrainLamb) return weights / update;
    return rule_.trust * weights / (update + rule_.weight_decay * weights);
}

}  // namespace weft::internal::train
