// power_sgd.hpp: matrices are averaged as products of two narrow ones.
// Source: Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression", NeurIPS 2019; the rules are
// PyTorch's (powerSGD_hook).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::train {

class Peers;

// Whether a matrix is worth it: at least 1 / least_rate of its numbers are saved.
bool is_worth_rank(size_t rows, size_t columns, size_t rank, double least_rate);

// A gradient of rows x columns numbers, one row behind the other. It is approximated by left * right^T.
struct LowRankMatrix {
    float* numbers = nullptr;
    size_t rows = 0, columns = 0;
    // The columns of the right factor, one behind the other: those of the last iteration. Empty: random ones.
    std::vector<float>* right = nullptr;
    uint64_t seed = 0;  // of random columns, equal on all ranks
};

// Makes `count` columns of `length` numbers orthonormal (Gram-Schmidt). Columns that depend on earlier ones become zero.
void orthonormalize(float* columns, size_t count, size_t length);

// Keeps its messages' memory. Thread-bound.
class PowerSgd {
  public:
    explicit PowerSgd(size_t rank) : rank_(rank) {}

    // Each matrix becomes an approximation of its average over all ranks, with the same bits on all of them. The
    // numbers of `whole` are averaged exactly.
    Status run(const Peers& peers, double divisor, std::span<LowRankMatrix> matrices,
               std::span<const std::span<float>> whole);

  private:
    size_t rank_of(const LowRankMatrix& matrix) const;
    void begin_right(const LowRankMatrix& matrix) const;
    // The sums of the left factors, made orthonormal, and the averages of `whole`.
    Status add_left(const Peers& peers, double divisor, std::span<LowRankMatrix> matrices,
                    std::span<const std::span<float>> whole);
    Status average_right(const Peers& peers, double divisor, std::span<LowRankMatrix> matrices);

    size_t rank_;
    std::vector<float> left_, right_;  // the factors of all matrices, which are messages
};

}  // namespace weft::internal::train
