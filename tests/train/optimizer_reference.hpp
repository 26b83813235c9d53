// optimizer_reference.hpp: the optimizers in doubles, one parameter at a time, as torch.optim and the papers define them.
#pragma once
#include <weft/train.h>

#include <cmath>
#include <vector>

namespace weft::internal::test {

// One whole parameter, which is a layer.
class ReferenceOptimizer {
  public:
    ReferenceOptimizer(const weftTrainOptimizerConfig_t& config, std::vector<double> values)
        : config_(config), values_(std::move(values)), first_(values_.size(), 0), second_(values_.size(), 0) {}

    const std::vector<double>& values() const { return values_; }
    const std::vector<double>& first() const { return first_; }
    const std::vector<double>& second() const { return second_; }

    void step(double learning_rate, const std::vector<double>& gradient) {
        ++steps_;
        if (config_.algorithm == weftTrainSgd || config_.algorithm == weftTrainLars)
            sgd(learning_rate, gradient);
        else
            adam(learning_rate, gradient);
    }

  private:
    static double norm(const std::vector<double>& x) {
        double sum = 0;
        for (const double each : x) sum += each * each;
        return std::sqrt(sum);
    }
    void sgd(double learning_rate, const std::vector<double>& gradient) {
        double ratio = 1;
        const double weights = norm(values_), slope = norm(gradient);
        if (config_.algorithm == weftTrainLars && weights > 0 && slope > 0)
            ratio = config_.trust * weights / (slope + config_.weightDecay * weights);
        for (size_t i = 0; i < values_.size(); ++i) {
            double d = ratio * (gradient[i] + config_.weightDecay * values_[i]);
            if (config_.momentum != 0) {
                first_[i] = steps_ == 1 ? d : config_.momentum * first_[i] + (1 - config_.dampening) * d;
                d = config_.nesterov ? d + config_.momentum * first_[i] : first_[i];
            }
            values_[i] -= learning_rate * d;
        }
    }
    void adam(double learning_rate, const std::vector<double>& gradient) {
        std::vector<double> update(values_.size());
        const bool corrects = config_.biasCorrection == 1;
        const double unbias1 = corrects ? 1 - std::pow(config_.beta1, steps_) : 1;
        const double unbias2 = corrects ? 1 - std::pow(config_.beta2, steps_) : 1;
        for (size_t i = 0; i < values_.size(); ++i) {
            double g = gradient[i];
            if (config_.algorithm == weftTrainAdam) g += config_.weightDecay * values_[i];
            if (config_.algorithm == weftTrainAdamW) values_[i] *= 1 - learning_rate * config_.weightDecay;
            first_[i] = config_.beta1 * first_[i] + (1 - config_.beta1) * g;
            second_[i] = config_.beta2 * second_[i] + (1 - config_.beta2) * g * g;
            update[i] = first_[i] / unbias1 / (std::sqrt(second_[i] / unbias2) + config_.epsilon);
            if (config_.algorithm == weftTrainLamb) update[i] += config_.weightDecay * values_[i];
        }
        double ratio = 1;
        const double weights = norm(values_), length = norm(update);
        if (config_.algorithm == weftTrainLamb && weights > 0 && length > 0) ratio = weights / length;
        for (size_t i = 0; i < values_.size(); ++i) values_[i] -= learning_rate * ratio * update[i];
    }

    weftTrainOptimizerConfig_t config_;
    std::vector<double> values_, first_, second_;
    int steps_ = 0;
};

}  // namespace weft::internal::test
