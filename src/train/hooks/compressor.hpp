// compressor.hpp: hooks that average gradients approximately and send less.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/train/hooks/bucket_hooks.hpp"
#include "src/train/hooks/compressed_exchange.hpp"
#include "src/train/hooks/compressor_memory.hpp"
#include "src/train/hooks/compressor_settings.hpp"
#include "src/train/hooks/power_sgd.hpp"

namespace weft::internal::train {

// The hook's state for one training object at a time: from serve() to the object's end. It lies where the gradients lie.
// On a device the work is enqueued on a stream of its own, which waits for the hook's stream; then that one waits for it.
// Thread-bound.
class Compressor {
  public:
    explicit Compressor(const CompressorSettings& settings);

    // Replaces the bucket's gradients by their approximate average. All ranks call it for the same bucket. On a device it
    // waits for the work in the first iteration and after a rebuild of the buckets only.
    Status reduce(HookOwner& owner, const weftTrainBucket_t& bucket);

    // The state as bytes, and its replacement by such bytes, of the same method. saved() waits for the device.
    Result<std::vector<std::byte>> saved() const;
    size_t saved_bytes() const;
    Status load(std::span<const std::byte> bytes);
    // A failure while it serves a training object other than `life`'s.
    Status check_free(const std::shared_ptr<const char>& life) const;
    // A failure if it has state of another model.
    Status check_model(std::span<const TensorFacts> parameters) const { return check_counts(states_, parameters); }
    // For a model on this device, or in host memory (-1). A failure if it lacks the kernels.
    Status prepare(int device);
    // From now on for `life`'s object of this model, after both checks. A hook of the user that calls this one does so
    // with the first bucket.
    void serve(const std::shared_ptr<const char>& life, std::span<const TensorFacts> parameters);
    const CompressorSettings& settings() const { return settings_; }
    // Whether the newest bucket was compressed.
    bool compressed() const { return compressed_; }
    // For the checks of handles.
    void end_by_exception() noexcept {}
    Status settle() { return ok(); }

  private:
    struct Member {
        size_t begin, count, rows;  // in the bucket, in elements
        int parameter;
    };
    // A bucket and its parameters.
    struct InWork {
        int bucket = 0;
        size_t count = 0;
        std::vector<Member> members;
    };
    // The numbers of a bucket, and those that become state if all are finite.
    struct Scratch {
        FlatBuffer values, errors, sum_errors, rights;
        FlatBuffer list, lists;  // of top-k: of this rank and of all
    };
    // As check_model().
    static Status check_counts(std::span<const CompressorState> states, std::span<const TensorFacts> parameters);
    MemoryNeeds needs() const;
    MessageForm form() const { return {settings_.method, settings_.block, settings_.float8}; }
    // The state lies where the owner's buckets lie, in their order.
    Status place(const HookOwner& owner, double divisor);
    // The state lies in `states_`.
    Status park();
    Status find_members(const HookOwner& owner, const weftTrainBucket_t& bucket);
    Status keep_first(const weftTrainBucket_t& bucket);
    Status exchange(const Peers& peers, const weftTrainBucket_t& bucket);
    // The values become momentum of this rank, with the state's momentum and the values as gradients.
    Status add_momentum();
    // With layer_scales the values become multiples of each parameter's own scale, and back.
    Status scale_layers();
    Status unscale_layers();
    // The values become the result, and the errors become the rest that was not sent.
    Status send(const Peers& peers, double divisor);
    Status send_matrices(const Peers& peers, double divisor);
    Status send_largest(const Peers& peers, double divisor);
    // If all values are finite.
    Status keep_state();
    bool has_momentum() const { return settings_.method == weftTrainOneBit && settings_.momentum > 0; }
    bool has_sums() const { return settings_.method != weftTrainPowerSgd && settings_.method != weftTrainTopK; }
    float* values() const { return reinterpret_cast<float*>(scratch_.values.data()); }
    float* errors() const { return reinterpret_cast<float*>(scratch_.errors.data()); }
    std::span<float> sum_errors() const;

    CompressorSettings settings_;
    bool compressed_ = false;
    std::weak_ptr<const char> serves_;     // HookOwner::life
    std::vector<TensorFacts> parameters_;  // of the model that it serves
    // Of each parameter. While the state lies in memory_, only their counts are right.
    std::vector<CompressorState> states_;
    std::unique_ptr<HookWorker> worker_;  // the fields after it have memory of its space
    int device_ = -1;                     // of the worker
    std::optional<CompressorMemory> memory_;
    std::weak_ptr<const char> placed_for_;  // whose buckets, and which version of them
    uint64_t version_ = 0;
    InWork now_;
    Scratch scratch_;
    CompressedExchange exchange_;
    PowerSgd power_sgd_;
};

}  // namespace weft::internal::train
