#include "src/train/optimizer/optimizer.hpp"

#include <cmath>

#include "src/kernels/cpu_kernels.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

bool has_momentum(const OptimizerRule& rule) {
    return (rule.algorithm == weftTrainSgd || rule.algorithm == weftTrainLars) && rule.momentum != 0;
}
bool has_moments(const OptimizerRule& rule) {
    return rule.algorithm == weftTrainAdam || rule.algorithm == weftTrainAdamW || rule.algorithm == weftTrainLamb;
}

// Each state begins on a cache line of its own.
size_t whole_lines(size_t elements) { return (elements + 15) / 16 * 16; }

AdamStep adam_step_of(const OptimizerRule& rule, uint64_t steps, double learning_rate, double scale) {
    const bool lamb = rule.algorithm == weftTrainLamb, shrinks = rule.algorithm == weftTrainAdamW;
    const double done = double(steps + 1);
    const double unbias = 1 / (1 - std::pow(rule.beta1, done));
    AdamStep step;
    step.scale = float(scale);
    step.decay = shrinks ? 0 : float(rule.weight_decay);
    step.shrink = shrinks ? float(1 - learning_rate * rule.weight_decay) : 1;
    step.mix1 = float(1 - rule.beta1);
    step.beta2 = float(rule.beta2);
    step.mix2 = float(1 - rule.beta2);
    step.rate = float(lamb ? unbias : learning_rate * unbias);
    step.root_scale = float(1 / std::sqrt(1 - std::pow(rule.beta2, done)));
    step.epsilon = float(rule.epsilon);
    return step;
}

}  // namespace

Result<std::shared_ptr<Optimizer>> Optimizer::make(const OptimizerRule& rule, std::vector<ModelPart> parts, Axes axes) {
    std::shared_ptr<Optimizer> made(new Optimizer(rule, std::move(parts), std::move(axes)));
    size_t elements = 0;
    for (const ModelPart& part : made->parts_) {
        made->offsets_.push_back(elements);
        elements += size_t(made->state_count()) * whole_lines(part.count);
    }
    auto memory = FlatBuffer::allocate(*made->space_, elements * sizeof(float));
    if (!memory) return memory.take_status();
    made->memory_ = std::move(*memory);
    return made;
}

int Optimizer::states_of(const OptimizerRule& rule) { return has_moments(rule) ? 2 : has_momentum(rule) ? 1 : 0; }

// PyTorch's names, so that checkpoints of both look alike.
const char* Optimizer::state_name(int state) const {
    if (!has_moments(rule_)) return "momentum_buffer";
    return state == 0 ? "exp_avg" : "exp_avg_sq";
}

float* Optimizer::state(int part, int state) const {
    const size_t offset = offsets_[size_t(part)] + size_t(state) * whole_lines(parts_[size_t(part)].count);
    return reinterpret_cast<float*>(memory_.data()) + offset;
}

Status Optimizer::ready() const {
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

Status Optimizer::step(double learning_rate, double scale) {
    std::vector<double> squares;
    if (by_layer()) WEFT_TRY(layer_norms(scale, squares));
    for (size_t p = 0; p < parts_.size(); ++p) {
        if (!parts_[p].gradient && parts_[p].count > 0) continue;
        const double own = by_layer() ? ratio(std::sqrt(squares[2 * p]), std::sqrt(squares[2 * p + 1])) : 1;
        if (has_moments(rule_))
            step_adam(p, learning_rate, scale, own);
        else
            step_sgd(p, learning_rate, scale, own);
        ++steps_[p];
    }
    return ok();
}

Status Optimizer::layer_norms(double scale, std::vector<double>& squares) {
    squares.assign(2 * parts_.size(), 0);
    std::vector<uint32_t> masks;
    for (size_t p = 0; p < parts_.size(); ++p) {
        if (parts_[p].gradient) add_layer_squares(p, scale, &squares[2 * p]);
        masks.insert(masks.end(), 2, parts_[p].axes);
    }
    return axes_.reduce(squares, masks, weftSum);
}

// LAMB's moments take the gradient in this pass: the direction depends on them.
void Optimizer::add_layer_squares(size_t p, double scale, double squares[2]) {
    const ModelPart& part = parts_[p];
    const OptimizerKernels& kernels = cpu_kernels().optimizers;
    alignas(64) float scratch[block_elements];
    const AdamStep step = adam_step_of(rule_, steps_[p], 0, scale);
    for_each_block(part.count, [&](size_t first, size_t count) {
        const float* update = read_block(part.gradient, part.gradient_type, first, count, scratch);
        double factor = scale * scale;
        if (rule_.algorithm == weftTrainLamb) {
            kernels.lamb_moments(step, part.values + first, state(int(p), 0) + first, state(int(p), 1) + first, update,
                                 scratch, count);
            update = scratch;
            factor = 1;
        }
        squares[0] += kernels.squares(part.values + first, count);
        squares[1] += factor * kernels.squares(update, count);
    });
}

double Optimizer::ratio(double weights, double update) const {
    if (weights == 0 || update == 0) return 1;
    if (rule_.algorithm == weftTrainLamb) return weights / update;
    return rule_.trust * weights / (update + rule_.weight_decay * weights);
}

void Optimizer::step_sgd(size_t p, double learning_rate, double scale, double ratio) {
    const ModelPart& part = parts_[p];
    alignas(64) float scratch[block_elements];
    float* const momentum = has_momentum(rule_) ? state(int(p), 0) : nullptr;
    SgdStep step;
    step.scale = float(ratio * scale);
    step.decay = float(ratio * rule_.weight_decay);
    step.momentum = float(rule_.momentum);
    // The first gradient becomes the momentum.
    step.damping = steps_[p] == 0 ? 1 : float(1 - rule_.dampening);
    step.rate = float(learning_rate);
    step.nesterov = rule_.nesterov;
    for_each_block(part.count, [&](size_t first, size_t count) {
        const float* const gradient = read_block(part.gradient, part.gradient_type, first, count, scratch);
        cpu_kernels().optimizers.sgd(step, part.values + first, momentum ? momentum + first : nullptr, gradient, count);
        write_copy(part, first, count);
    });
}

void Optimizer::step_adam(size_t p, double learning_rate, double scale, double ratio) {
    const ModelPart& part = parts_[p];
    const OptimizerKernels& kernels = cpu_kernels().optimizers;
    alignas(64) float scratch[block_elements];
    const AdamStep step = adam_step_of(rule_, steps_[p], learning_rate, scale);
    float *const mean = state(int(p), 0), *const square = state(int(p), 1);
    for_each_block(part.count, [&](size_t first, size_t count) {
        float* const values = part.values + first;
        if (rule_.algorithm == weftTrainLamb) {
            kernels.lamb(step, float(learning_rate * ratio), values, mean + first, square + first, count);
        } else {
            const float* const gradient = read_block(part.gradient, part.gradient_type, first, count, scratch);
            kernels.adam(step, values, mean + first, square + first, gradient, count);
        }
        write_copy(part, first, count);
    });
}

void Optimizer::write_copy(const ModelPart& part, size_t first, size_t count) {
    if (part.copy) write_block(part.copy, part.copy_type, first, count, part.values + first);
}

}  // namespace weft::internal::train
