// layers.hpp: the layers of the model, forward and backward. Backward functions add to the gradients of parameters, and
// to dx. Rows are tokens.
#pragma once

#include "multiply.hpp"

#include <cmath>
#include <vector>

namespace train {

// y = x w + bias, with w of `in` rows and `out` columns.
template <class Real>
void linear(int rows, int in, int out, const Real* x, const Real* w, const Real* bias, Real* y) {
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < out; ++j) y[i * out + j] = bias ? bias[j] : 0;
    multiply<Real>(rows, out, in, {x, in}, {w, out}, {y, out});
}

template <class Real>
struct LinearGradients {
    Real *x, *w, *bias;
};

template <class Real>
void linear_backward(int rows, int in, int out, const Real* x, const Real* w, const Real* dy, LinearGradients<Real> to,
                     std::vector<Real>& scratch) {
    multiply<Real>(rows, in, out, {dy, out}, transposed<Real>(in, out, {w, out}, scratch), {to.x, in});
    multiply<Real>(in, out, rows, {x, 1, in}, {dy, out}, {to.w, out});
    for (int i = 0; to.bias && i < rows; ++i)
        for (int j = 0; j < out; ++j) to.bias[j] += dy[i * out + j];
}

// The mean of a row and the reciprocal of its standard deviation.
template <class Real>
struct Moments {
    Real mean, scale;
};

template <class Real>
Moments<Real> moments(int width, const Real* x) {
    Real mean = 0, variance = 0;
    for (int j = 0; j < width; ++j) mean += x[j] / Real(width);
    for (int j = 0; j < width; ++j) variance += (x[j] - mean) * (x[j] - mean) / Real(width);
    return {mean, 1 / std::sqrt(variance + Real(1e-5))};
}

template <class Real>
void layer_norm(int rows, int width, const Real* x, const Real* weight, const Real* bias, Real* y) {
    for (int i = 0; i < rows; ++i, x += width, y += width) {
        const Moments<Real> row = moments(width, x);
        for (int j = 0; j < width; ++j) y[j] = (x[j] - row.mean) * row.scale * weight[j] + bias[j];
    }
}

template <class Real>
struct NormGradients {
    Real *x, *weight, *bias;
};

template <class Real>
void layer_norm_backward(int rows, int width, const Real* x, const Real* weight, const Real* dy,
                         NormGradients<Real> to) {
    for (int i = 0; i < rows; ++i, x += width, dy += width, to.x += width) {
        const Moments<Real> row = moments(width, x);
        Real sum = 0, product = 0;
        for (int j = 0; j < width; ++j) {
            const Real normal = (x[j] - row.mean) * row.scale;
            to.weight[j] += dy[j] * normal;
            to.bias[j] += dy[j];
            sum += dy[j] * weight[j] / Real(width);
            product += dy[j] * weight[j] * normal / Real(width);
        }
        for (int j = 0; j < width; ++j)
            to.x[j] += row.scale * (dy[j] * weight[j] - sum - (x[j] - row.mean) * row.scale * product);
    }
}

// GELU in its tanh form. The tanh is kept for the backward pass; by exp it is faster than std::tanh.
template <class Real>
void gelu(int count, const Real* x, Real* tanh, Real* y) {
    for (int i = 0; i < count; ++i) {
        const Real inner = Real(0.7978845608028654) * (x[i] + Real(0.044715) * x[i] * x[i] * x[i]);
        tanh[i] = 1 - 2 / (std::exp(2 * inner) + 1);
        y[i] = x[i] * (1 + tanh[i]) / 2;
    }
}

// Replaces the gradient of y by that of x.
template <class Real>
void gelu_backward(int count, const Real* x, const Real* tanh, Real* gradient) {
    for (int i = 0; i < count; ++i) {
        const Real inner = Real(0.7978845608028654) * (1 + 3 * Real(0.044715) * x[i] * x[i]);
        gradient[i] *= (1 + tanh[i] + x[i] * (1 - tanh[i] * tanh[i]) * inner) / 2;
    }
}

// Causal attention of one sequence. A row of qkv holds the queries, keys and values of all heads.
struct Heads {
    int tokens, width, heads;
};

// Replaces the scores of a query for the keys up to its own by their softmax, and the later ones by zeros.
template <class Real>
void causal_softmax(int tokens, Real scale, Real* scores) {
    for (int i = 0; i < tokens; ++i, scores += tokens) {
        Real most = scores[0], sum = 0;
        for (int j = 1; j <= i; ++j) most = std::max(most, scores[j]);
        for (int j = 0; j <= i; ++j) sum += scores[j] = std::exp((scores[j] - most) * scale);
        for (int j = 0; j <= i; ++j) scores[j] /= sum;
        for (int j = i + 1; j < tokens; ++j) scores[j] = 0;
    }
}

// weights  out: for each head a square of tokens
// y        out: width elements a token
template <class Real>
void attention(Heads shape, const Real* qkv, Real* weights, Real* y, std::vector<Real>& scratch) {
    const int T = shape.tokens, C = shape.width, D = C / shape.heads;
    std::fill_n(weights, shape.heads * T * T, Real(0));
    std::fill_n(y, T * C, Real(0));
    for (int head = 0; head < shape.heads; ++head, weights += T * T) {
        const Real* q = qkv + head * D;
        multiply<Real>(T, T, D, {q, 3 * C}, transposed<Real>(T, D, {q + C, 3 * C}, scratch), {weights, T});
        causal_softmax(T, 1 / std::sqrt(Real(D)), weights);
        multiply<Real>(T, D, T, {weights, T}, {q + 2 * C, 3 * C}, {y + head * D, C});
    }
}

// dqkv is added to; `scores` is work memory: a square of tokens.
template <class Real>
void attention_backward(Heads shape, const Real* qkv, const Real* weights, const Real* dy, Real* dqkv, Real* scores,
                        std::vector<Real>& scratch) {
    const int T = shape.tokens, C = shape.width, D = C / shape.heads;
    const Real scale = 1 / std::sqrt(Real(D));
    for (int head = 0; head < shape.heads; ++head, weights += T * T) {
        const Real *q = qkv + head * D, *from = dy + head * D;
        Real* dq = dqkv + head * D;
        multiply<Real>(T, D, T, {weights, 1, T}, {from, C}, {dq + 2 * C, 3 * C});
        std::fill_n(scores, T * T, Real(0));
        multiply<Real>(T, T, D, {from, C}, transposed<Real>(T, D, {q + 2 * C, 3 * C}, scratch), {scores, T});
        for (int i = 0; i < T; ++i) {
            Real sum = 0;
            for (int j = 0; j <= i; ++j) sum += scores[i * T + j] * weights[i * T + j];
            for (int j = 0; j < T; ++j) scores[i * T + j] = weights[i * T + j] * (scores[i * T + j] - sum) * scale;
        }
        multiply<Real>(T, D, T, {scores, T}, {q + C, 3 * C}, {dq, 3 * C});
        multiply<Real>(T, D, T, {scores, 1, T}, {q, 3 * C}, {dq + C, 3 * C});
    }
}

// Returns the sum of -log p(target), and replaces the logits by their gradient times `scale`.
template <class Real>
double cross_entropy(int rows, int classes, const int* targets, Real scale, Real* logits) {
    double loss = 0;
    for (int i = 0; i < rows; ++i, logits += classes) {
        const Real most = *std::max_element(logits, logits + classes);
        Real sum = 0;
        for (int j = 0; j < classes; ++j) sum += std::exp(logits[j] - most);
        loss += static_cast<double>(std::log(sum) + most - logits[targets[i]]);
        for (int j = 0; j < classes; ++j)
            logits[j] = (std::exp(logits[j] - most) / sum - Real(j == targets[i])) * scale;
    }
    return loss;
}

}  // namespace train
