#include "src/train/hooks/power_sgd.hpp"

#include <algorithm>

#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

float* numbers_of(const FlatBuffer& memory) { return reinterpret_cast<float*>(memory.data()); }

}  // namespace

bool is_worth_rank(size_t rows, size_t columns, size_t rank, double least_rate) {
    return double(rows + columns) * double(rank) * least_rate < double(rows) * double(columns);
}

size_t factor_columns(size_t rows, size_t columns, size_t rank) { return std::min({rank, rows, columns}); }

Status PowerSgd::run(const Peers& peers, HookWorker& worker, double divisor, std::span<const LowRankMatrix> matrices,
                     std::span<const std::span<float>> whole) {
    for (const LowRankMatrix& matrix : matrices) WEFT_TRY(worker.begin_right(matrix, rank_of(matrix)));
    WEFT_TRY(add_left(peers, worker, divisor, matrices, whole));
    return matrices.empty() ? ok() : average_right(peers, worker, divisor, matrices);
}

Status PowerSgd::add_left(const Peers& peers, HookWorker& worker, double divisor,
                          std::span<const LowRankMatrix> matrices, std::span<const std::span<float>> whole) {
    MemorySpace& space = worker.space();
    size_t factors = 0, others = 0;
    for (const LowRankMatrix& matrix : matrices) factors += rank_of(matrix) * matrix.rows;
    for (const std::span<float> numbers : whole) others += numbers.size();
    if (factors + others == 0) return ok();
    WEFT_TRY(left_.grow(space, (factors + others) * sizeof(float)));
    float* const left = numbers_of(left_);
    float* next = left;
    for (const LowRankMatrix& matrix : matrices) {
        WEFT_TRY(worker.multiply_right(matrix, rank_of(matrix), next));
        next += rank_of(matrix) * matrix.rows;
    }
    for (const std::span<float> numbers : whole) {
        WEFT_TRY(space.copy(next, numbers.data(), numbers.size_bytes()));
        next += numbers.size();
    }
    WEFT_TRY(peers.all_reduce(left, left, factors + others, weftFloat32, weftSum, space.stream()));
    next = left;
    for (const LowRankMatrix& matrix : matrices) {
        WEFT_TRY(worker.orthonormalize(next, rank_of(matrix), matrix.rows));
        next += rank_of(matrix) * matrix.rows;
    }
    WEFT_TRY(worker.each(HookWork::average, others, next, nullptr, nullptr, float(divisor)));
    for (const std::span<float> numbers : whole) {
        WEFT_TRY(space.copy(numbers.data(), next, numbers.size_bytes()));
        next += numbers.size();
    }
    return ok();
}

Status PowerSgd::average_right(const Peers& peers, HookWorker& worker, double divisor,
                               std::span<const LowRankMatrix> matrices) {
    MemorySpace& space = worker.space();
    size_t factors = 0;
    for (const LowRankMatrix& matrix : matrices) factors += rank_of(matrix) * matrix.columns;
    WEFT_TRY(right_.grow(space, factors * sizeof(float)));
    const float* left = numbers_of(left_);
    float* right = numbers_of(right_);
    for (const LowRankMatrix& matrix : matrices) {
        WEFT_TRY(worker.multiply_left(matrix, rank_of(matrix), left, right));
        left += rank_of(matrix) * matrix.rows;
        right += rank_of(matrix) * matrix.columns;
    }
    left = numbers_of(left_);
    right = numbers_of(right_);
    WEFT_TRY(peers.all_reduce(right, right, factors, weftFloat32, weftSum, space.stream()));
    WEFT_TRY(worker.each(HookWork::average, factors, right, nullptr, nullptr, float(divisor)));
    for (const LowRankMatrix& matrix : matrices) {
        const size_t rank = rank_of(matrix);
        WEFT_TRY(space.copy(matrix.right, right, rank * matrix.columns * sizeof(float)));
        WEFT_TRY(worker.multiply_factors(matrix, rank, left, right));
        left += rank * matrix.rows;
        right += rank * matrix.columns;
    }
    return ok();
}

}  // namespace weft::internal::train
