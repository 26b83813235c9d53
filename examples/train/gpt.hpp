// gpt.hpp: a GPT: embeddings, blocks of attention and MLP behind layer norms, a head. Forward and backward.
#pragma once

#include "layers.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace train {

struct Shape {
    int layers, width, heads, context, vocabulary;
};

// Random bits that depend on nothing but the three numbers (splitmix64), so that each rank finds the same.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
    std::uint64_t z = (seed * 0x100000001b3 + stream) * 0x9e3779b97f4a7c15 + index * 0xd1342543de82ef95;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// A tensor of the model. A matrix has its inputs as rows.
struct Parameter {
    std::string name;
    int unit;
    int rows, columns;  // a vector has one row
    double deviation;   // of the normal distribution of its first values; 0: all are `value`
    double value;

    std::size_t count() const { return static_cast<std::size_t>(rows) * columns; }
};

// Sharded training gathers and releases a unit as a whole: the embeddings, each block, the head.
inline int unit_count(const Shape& shape) { return shape.layers + 2; }

// Places in a unit.
enum Embeddings { token_table, position_table };
enum Block {
    norm1,
    norm1_bias,
    qkv,
    qkv_bias,
    out,
    out_bias,
    norm2,
    norm2_bias,
    up,
    up_bias,
    down,
    down_bias,
    block_size
};
enum Head { norm, norm_bias, head, head_size };

// The number of a unit's first parameter.
inline int first_of_unit(int unit) { return unit == 0 ? 0 : 2 + (unit - 1) * block_size; }

// All parameters, in the order of the forward pass. A unit's parameters lie one behind the other.
inline std::vector<Parameter> parameters_of(const Shape& shape) {
    const int C = shape.width;
    const double deviation = 0.6 / std::sqrt(double(C)), residual = deviation / std::sqrt(2.0 * shape.layers);
    std::vector<Parameter> all = {{"token", 0, shape.vocabulary, C, 0.2, 0}, {"position", 0, shape.context, C, 0.1, 0}};
    for (int layer = 0; layer < shape.layers; ++layer) {
        const std::string block = "block" + std::to_string(layer) + ".";
        const int unit = layer + 1;
        all.push_back({block + "norm1", unit, 1, C, 0, 1});
        all.push_back({block + "norm1_bias", unit, 1, C, 0, 0});
        all.push_back({block + "qkv", unit, C, 3 * C, deviation, 0});
        all.push_back({block + "qkv_bias", unit, 1, 3 * C, 0, 0});
        all.push_back({block + "out", unit, C, C, residual, 0});
        all.push_back({block + "out_bias", unit, 1, C, 0, 0});
        all.push_back({block + "norm2", unit, 1, C, 0, 1});
        all.push_back({block + "norm2_bias", unit, 1, C, 0, 0});
        all.push_back({block + "up", unit, C, 4 * C, deviation, 0});
        all.push_back({block + "up_bias", unit, 1, 4 * C, 0, 0});
        all.push_back({block + "down", unit, 4 * C, C, residual, 0});
        all.push_back({block + "down_bias", unit, 1, C, 0, 0});
    }
    all.push_back({"norm", shape.layers + 1, 1, C, 0, 1});
    all.push_back({"norm_bias", shape.layers + 1, 1, C, 0, 0});
    all.push_back({"head", shape.layers + 1, C, shape.vocabulary, deviation, 0});
    return all;
}

// The first value number `index` of parameter number `number`.
inline double first_value(const Parameter& parameter, std::uint64_t seed, int number, std::size_t index) {
    if (parameter.deviation == 0) return parameter.value;
    const auto uniform = [&](int which) {
        return (double(random_bits(seed, 1 + number, 2 * index + which) >> 11) + 0.5) / 9007199254740992.0;
    };
    return parameter.deviation * std::sqrt(-2 * std::log(uniform(0))) * std::cos(6.283185307179586 * uniform(1));
}

enum class Pass { forward, backward };

// Where the values and gradients of the parameters lie. The model announces which unit it uses. Thread-bound.
template <class Real>
class Parameters {
  public:
    virtual ~Parameters() = default;
    // The values of the unit are needed; in the backward pass also memory for its gradients, which are added up there.
    virtual void before(int unit, Pass pass) = 0;
    // The unit is not used any more in this pass: in the backward pass its gradients are complete.
    virtual void after(int unit, Pass pass) = 0;
    virtual const Real* values(int parameter) const = 0;
    virtual Real* gradient(int parameter) = 0;
};

// The model without its parameters: activations of one batch. Thread-bound.
template <class Real>
class Gpt {
  public:
    explicit Gpt(const Shape& shape) : shape_(shape) {}

    // Returns the mean over all targets of -log p(target). backward() computes the gradients of this mean times `scale`.
    // tokens, targets  `sequences` times shape.context numbers below shape.vocabulary
    double forward(Parameters<Real>& parameters, int sequences, const int* tokens, const int* targets, Real scale = 1) {
        resize(sequences);
        embed(parameters, tokens);
        for (int layer = 0; layer < shape_.layers; ++layer) block_forward(parameters, layer);
        const int unit = shape_.layers + 1, C = shape_.width;
        parameters.before(unit, Pass::forward);
        const int first = first_of_unit(unit);
        const std::vector<Real>& x = layers_.back().y;
        layer_norm(rows_, C, x.data(), parameters.values(first + norm), parameters.values(first + norm_bias),
                   normal_.data());
        linear<Real>(rows_, C, shape_.vocabulary, normal_.data(), parameters.values(first + head), nullptr,
                     logits_.data());
        parameters.after(unit, Pass::forward);
        return cross_entropy(rows_, shape_.vocabulary, targets, scale / Real(rows_), logits_.data()) / rows_;
    }

    // After forward(), with the same tokens: adds to all gradients.
    void backward(Parameters<Real>& parameters, const int* tokens) {
        const int unit = shape_.layers + 1, C = shape_.width, first = first_of_unit(unit);
        parameters.before(unit, Pass::backward);
        std::vector<Real> dnormal(normal_.size());
        linear_backward<Real>(rows_, C, shape_.vocabulary, normal_.data(), parameters.values(first + head),
                              logits_.data(), {dnormal.data(), parameters.gradient(first + head), nullptr}, scratch_);
        dx_.assign(normal_.size(), 0);
        layer_norm_backward<Real>(
            rows_, C, layers_.back().y.data(), parameters.values(first + norm), dnormal.data(),
            {dx_.data(), parameters.gradient(first + norm), parameters.gradient(first + norm_bias)});
        parameters.after(unit, Pass::backward);
        for (int layer = shape_.layers - 1; layer >= 0; --layer) block_backward(parameters, layer);
        embed_backward(parameters, tokens);
    }

  private:
    // A block keeps these for its backward pass. Each has a row for each token.
    struct Activations {
        std::vector<Real> normal1, qkv, weights, attended, middle, normal2, hidden, tanh, active, y;
    };

    void resize(int sequences) {
        if (sequences == sequences_) return;
        sequences_ = sequences;
        rows_ = sequences * shape_.context;
        const std::size_t rows = static_cast<std::size_t>(rows_), row = rows * shape_.width;
        embedded_.resize(row);
        normal_.resize(row);
        logits_.resize(rows * shape_.vocabulary);
        layers_.resize(shape_.layers);
        for (Activations& kept : layers_) {
            for (auto* one : {&kept.normal1, &kept.attended, &kept.middle, &kept.normal2, &kept.y}) one->resize(row);
            for (auto* four : {&kept.hidden, &kept.tanh, &kept.active}) four->resize(4 * row);
            kept.qkv.resize(3 * row);
            kept.weights.resize(rows * shape_.heads * shape_.context);
        }
    }

    const std::vector<Real>& input(int layer) const { return layer == 0 ? embedded_ : layers_[layer - 1].y; }
    Heads heads() const { return {shape_.context, shape_.width, shape_.heads}; }

    void embed(Parameters<Real>& parameters, const int* tokens) {
        parameters.before(0, Pass::forward);
        const Real *token = parameters.values(token_table), *position = parameters.values(position_table);
        const int C = shape_.width;
        for (int i = 0; i < rows_; ++i)
            for (int j = 0; j < C; ++j)
                embedded_[i * C + j] = token[tokens[i] * C + j] + position[i % shape_.context * C + j];
        parameters.after(0, Pass::forward);
    }

    void embed_backward(Parameters<Real>& parameters, const int* tokens) {
        parameters.before(0, Pass::backward);
        Real *token = parameters.gradient(token_table), *position = parameters.gradient(position_table);
        const int C = shape_.width;
        for (int i = 0; i < rows_; ++i) {
            for (int j = 0; j < C; ++j) {
                token[tokens[i] * C + j] += dx_[i * C + j];
                position[i % shape_.context * C + j] += dx_[i * C + j];
            }
        }
        parameters.after(0, Pass::backward);
    }

    void block_forward(Parameters<Real>& parameters, int layer) {
        const int C = shape_.width, unit = layer + 1;
        parameters.before(unit, Pass::forward);
        const auto w = [&](int place) { return parameters.values(first_of_unit(unit) + place); };
        Activations& kept = layers_[layer];
        const std::vector<Real>& x = input(layer);
        layer_norm(rows_, C, x.data(), w(norm1), w(norm1_bias), kept.normal1.data());
        linear(rows_, C, 3 * C, kept.normal1.data(), w(qkv), w(qkv_bias), kept.qkv.data());
        for (int i = 0; i < sequences_; ++i) {
            const std::size_t row = static_cast<std::size_t>(i) * shape_.context;
            attention(heads(), kept.qkv.data() + row * 3 * C, kept.weights.data() + row * shape_.heads * shape_.context,
                      kept.attended.data() + row * C, scratch_);
        }
        linear(rows_, C, C, kept.attended.data(), w(out), w(out_bias), kept.middle.data());
        for (std::size_t i = 0; i < x.size(); ++i) kept.middle[i] += x[i];
        layer_norm(rows_, C, kept.middle.data(), w(norm2), w(norm2_bias), kept.normal2.data());
        linear(rows_, C, 4 * C, kept.normal2.data(), w(up), w(up_bias), kept.hidden.data());
        gelu(rows_ * 4 * C, kept.hidden.data(), kept.tanh.data(), kept.active.data());
        linear(rows_, 4 * C, C, kept.active.data(), w(down), w(down_bias), kept.y.data());
        for (std::size_t i = 0; i < x.size(); ++i) kept.y[i] += kept.middle[i];
        parameters.after(unit, Pass::forward);
    }

    // dx_ is the gradient of the block's output before, of its input after.
    void block_backward(Parameters<Real>& parameters, int layer) {
        const int unit = layer + 1;
        parameters.before(unit, Pass::backward);
        mlp_backward(parameters, first_of_unit(unit), layers_[layer]);
        attention_block_backward(parameters, first_of_unit(unit), layers_[layer], input(layer));
        parameters.after(unit, Pass::backward);
    }

    void mlp_backward(Parameters<Real>& parameters, int first, Activations& kept) {
        const int C = shape_.width;
        const auto w = [&](int place) { return parameters.values(first + place); };
        const auto dw = [&](int place) { return parameters.gradient(first + place); };
        std::vector<Real> dactive(kept.active.size()), dnormal(dx_.size());
        linear_backward<Real>(rows_, 4 * C, C, kept.active.data(), w(down), dx_.data(),
                              {dactive.data(), dw(down), dw(down_bias)}, scratch_);
        gelu_backward(rows_ * 4 * C, kept.hidden.data(), kept.tanh.data(), dactive.data());
        linear_backward<Real>(rows_, C, 4 * C, kept.normal2.data(), w(up), dactive.data(),
                              {dnormal.data(), dw(up), dw(up_bias)}, scratch_);
        layer_norm_backward<Real>(rows_, C, kept.middle.data(), w(norm2), dnormal.data(),
                                  {dx_.data(), dw(norm2), dw(norm2_bias)});
    }

    void attention_block_backward(Parameters<Real>& parameters, int first, Activations& kept,
                                  const std::vector<Real>& x) {
        const int C = shape_.width;
        const auto w = [&](int place) { return parameters.values(first + place); };
        const auto dw = [&](int place) { return parameters.gradient(first + place); };
        std::vector<Real> dattended(dx_.size()), dqkv(kept.qkv.size()), dnormal(dx_.size());
        std::vector<Real> scores(static_cast<std::size_t>(shape_.context) * shape_.context);
        linear_backward<Real>(rows_, C, C, kept.attended.data(), w(out), dx_.data(),
                              {dattended.data(), dw(out), dw(out_bias)}, scratch_);
        for (int i = 0; i < sequences_; ++i) {
            const std::size_t row = static_cast<std::size_t>(i) * shape_.context;
            attention_backward(heads(), kept.qkv.data() + row * 3 * C,
                               kept.weights.data() + row * shape_.heads * shape_.context, dattended.data() + row * C,
                               dqkv.data() + row * 3 * C, scores.data(), scratch_);
        }
        linear_backward<Real>(rows_, C, 3 * C, kept.normal1.data(), w(qkv), dqkv.data(),
                              {dnormal.data(), dw(qkv), dw(qkv_bias)}, scratch_);
        layer_norm_backward<Real>(rows_, C, x.data(), w(norm1), dnormal.data(),
                                  {dx_.data(), dw(norm1), dw(norm1_bias)});
    }

    Shape shape_;
    int sequences_ = 0, rows_ = 0;
    std::vector<Real> embedded_, normal_, logits_;
    std::vector<Activations> layers_;
    std::vector<Real> dx_, scratch_;  // work memory
};

}  // namespace train
