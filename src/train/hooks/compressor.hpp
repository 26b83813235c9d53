// compressor.hpp: hooks that average gradients approximately and send less: their settings and their state, which is
// kept for each parameter and so survives the rebuild of the buckets.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/train/hooks/bucket_hooks.hpp"
#include "src/train/hooks/compressed_exchange.hpp"
#include "src/train/hooks/compressor_state.hpp"
#include "src/train/hooks/power_sgd.hpp"

namespace weft::internal::train {

struct CompressorSettings {
    weftTrainCompression_t method = weftTrainPowerSgd;
    bool error_feedback = true;
    uint64_t start_iteration = 0;  // before it gradients are averaged exactly
    size_t rank = 1;               // PowerSGD
    double least_rate = 2;
    bool warm_start = true;
    uint64_t seed = 0;
    double density = 0.01;  // top-k
    size_t block = 256;     // int8
    double momentum = 0.9;  // 1-bit
    weftDataType_t float8 = weftFloat8e4m3;
    bool layer_scales = false;  // 1-bit
};

// The hook's state for one training object at a time: from serve() to the object's end. Thread-bound.
class Compressor {
  public:
    explicit Compressor(const CompressorSettings& settings);

    // Replaces the bucket's gradients by their approximate average. All ranks call it for the same bucket.
    Status reduce(HookOwner& owner, const weftTrainBucket_t& bucket);

    // The state as bytes, and its replacement by such bytes, of the same method.
    std::vector<std::byte> saved() const { return bytes_of(settings_.method, states_); }
    Status load(std::span<const std::byte> bytes);
    // A failure while it serves a training object other than `life`'s.
    Status check_free(const std::shared_ptr<const char>& life) const;
    // A failure if it has state of another model.
    Status check_model(std::span<const TensorFacts> parameters) const { return check_counts(states_, parameters); }
    // From now on for `life`'s object of this model, after both checks. A hook of the user that calls this one does so
    // with the first bucket.
    void serve(const std::shared_ptr<const char>& life, std::span<const TensorFacts> parameters);
    const CompressorSettings& settings() const { return settings_; }
    // Whether the newest bucket was compressed.
    bool compressed() const { return compressed_; }
    // The settings, as a text that is equal on all ranks.
    std::string described() const;
    // For the checks of handles.
    void end_by_exception() noexcept {}
    Status settle() { return ok(); }

  private:
    struct Member {
        CompressorState* state;
        size_t begin, count, rows;  // in the bucket, in elements
        int parameter;
    };
    // As check_model().
    static Status check_counts(std::span<const CompressorState> states, std::span<const TensorFacts> parameters);
    Status find_members(const HookOwner& owner, const weftTrainBucket_t& bucket);
    Status average_first(const weftTrainBucket_t& bucket);
    // The values become momentum of this rank, with the state's momentum and the values as gradients.
    void add_momentum();
    void keep_momentum();
    // With layer_scales the values become multiples of each parameter's own scale, and back.
    void scale_layers();
    void unscale_layers();
    Status exchange(const Peers& peers, const weftTrainBucket_t& bucket);
    // Sets the errors of the sums that this rank makes.
    void take_part(const Peers& peers, double divisor, size_t count);
    // The values become the result, and the errors become the rest that was not sent.
    Status send(const Peers& peers, double divisor);
    Status send_matrices(const Peers& peers, double divisor);
    Status send_largest(const Peers& peers, double divisor);
    void keep_state();
    bool has_momentum() const { return settings_.method == weftTrainOneBit && settings_.momentum > 0; }

    CompressorSettings settings_;
    bool compressed_ = false;
    std::weak_ptr<const char> serves_;                 // HookOwner::life
    std::vector<TensorFacts> parameters_;              // of the model that it serves
    std::vector<CompressorState> states_;              // of each parameter
    std::vector<Member> members_;                      // of the bucket
    std::vector<float> values_, errors_, sum_errors_;  // of the bucket
    std::vector<std::vector<float>> rights_;           // of each member
    CompressedExchange exchange_;
    PowerSgd power_sgd_;
};

}  // namespace weft::internal::train
