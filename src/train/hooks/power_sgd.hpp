// power_sgd.hpp: matrices are averaged as products of two narrow ones.
// Source: Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression", NeurIPS 2019; the rules are
// PyTorch's (powerSGD_hook).
#pragma once
#include <span>

#include "src/base/result.hpp"
#include "src/train/flat_buffer.hpp"
#include "src/train/hooks/hook_worker.hpp"

namespace weft::internal::train {

class Peers;

// Whether a matrix is worth it: at least 1 / least_rate of its numbers are saved.
bool is_worth_rank(size_t rows, size_t columns, size_t rank, double least_rate);
// The columns of a matrix's factors.
size_t factor_columns(size_t rows, size_t columns, size_t rank);

// Keeps its messages' memory, which is the worker's. Thread-bound.
class PowerSgd {
  public:
    explicit PowerSgd(size_t rank) : rank_(rank) {}

    // Each matrix becomes an approximation of its average over all ranks, with the same bits on all of them. The
    // numbers of `whole` are averaged exactly. On a device the work is enqueued.
    Status run(const Peers& peers, HookWorker& worker, double divisor, std::span<const LowRankMatrix> matrices,
               std::span<const std::span<float>> whole);

  private:
    size_t rank_of(const LowRankMatrix& matrix) const { return factor_columns(matrix.rows, matrix.columns, rank_); }
    // The sums of the left factors, made orthonormal, and the averages of `whole`.
    Status add_left(const Peers& peers, HookWorker& worker, double divisor, std::span<const LowRankMatrix> matrices,
                    std::span<const std::span<float>> whole);
    Status average_right(const Peers& peers, HookWorker& worker, double divisor,
                         std::span<const LowRankMatrix> matrices);

    size_t rank_;
    FlatBuffer left_, right_;  // the factors of all matrices, which are messages
};

}  // namespace weft::internal::train
