// compressor_memory.hpp: a compressor's state in the memory of the gradients, in the order of the buckets.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/train/gradient_buckets.hpp"
#include "src/train/hooks/compressed_exchange.hpp"
#include "src/train/hooks/compressor_state.hpp"

namespace weft::internal::train {

// The state that a method keeps.
struct MemoryNeeds {
    bool error = false, momentum = false;
    bool has_sums = false;   // the errors of the sums that this rank makes
    size_t factor_rank = 0;  // of PowerSGD's right factors; 0: none are kept
    double least_rate = 2;
};

// Move-only. The worker must outlive it. Thread-bound.
class CompressorMemory {
  public:
    // The state of each parameter, for one layout of the buckets. If another rank added up the elements before, the error
    // of the sum becomes this rank's own error, times `divisor`. Waits for the copies.
    static Result<CompressorMemory> make(HookWorker& worker, const MemoryNeeds& needs, const MessageForm& form,
                                         const GradientBuckets& buckets, std::vector<CompressorState> states,
                                         const Peers& peers, double divisor);
    // The state of each parameter. Waits for the worker's work.
    Result<std::vector<CompressorState>> states(HookWorker& worker) const;
    // The bytes of its form in a checkpoint.
    size_t bytes() const;

    // Null or empty: not needed.
    float* error(int bucket) const { return at(error_, buckets_[size_t(bucket)].begin); }
    float* momentum(int bucket) const { return at(momentum_, buckets_[size_t(bucket)].begin); }
    std::span<float> sum_error(int bucket) const {
        const BucketPart& own = buckets_[size_t(bucket)];
        return {at(sum_error_, own.sum_begin), sum_error_.bytes() > 0 ? own.part.count : 0};
    }
    float* right(int parameter) const { return at(right_, parameters_[size_t(parameter)].right_begin); }
    size_t right_count(int parameter) const { return parameters_[size_t(parameter)].right_count; }
    // Of the momentum in messages, a float64.
    double* scale(int parameter) const { return reinterpret_cast<double*>(scale_.data()) + parameter; }

    // Of the parameter: equal for all of a bucket.
    uint64_t iterations(int parameter) const { return parameters_[size_t(parameter)].iterations; }
    void count_iteration(int parameter) { ++parameters_[size_t(parameter)].iterations; }
    // True at the first call: its scale is not known yet.
    bool take_first_scale(int parameter) { return !std::exchange(parameters_[size_t(parameter)].has_scale, true); }

  private:
    struct BucketPart {
        size_t begin = 0;      // of its elements in the arrays of all buckets
        NumberRange part;      // which this rank adds up
        size_t sum_begin = 0;  // of the part in sum_error_
    };
    struct Parameter {
        size_t count = 0;
        size_t begin = 0;                  // in the arrays of all buckets
        size_t sum_begin = 0;              // the part's first element, from the parameter's begin
        size_t sum_count = 0, sum_at = 0;  // and where its error lies in sum_error_
        size_t right_begin = 0, right_count = 0;
        uint64_t iterations = 0;
        bool has_scale = false;
    };
    static float* at(const FlatBuffer& memory, size_t element) {
        return memory.bytes() > 0 ? reinterpret_cast<float*>(memory.data()) + element : nullptr;
    }
    void lay_out(const MemoryNeeds& needs, const MessageForm& form, const GradientBuckets& buckets, const Peers& peers);
    Status fill(MemorySpace& space, const MemoryNeeds& needs, std::vector<CompressorState>& states, double divisor);

    std::vector<BucketPart> buckets_;
    std::vector<Parameter> parameters_;
    size_t elements_ = 0, sums_ = 0, rights_ = 0;  // of the arrays
    FlatBuffer error_, momentum_, sum_error_, right_, scale_;
};

}  // namespace weft::internal::train
