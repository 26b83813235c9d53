// gradient_buckets.hpp: the memory of all gradients, in buckets, and the scratch memory of hooks.
#pragma once
#include <vector>

#include "src/train/bucket_layout.hpp"
#include "src/train/flat_buffer.hpp"
#include "src/train/memory_space.hpp"

namespace weft::internal::train {

// Hooks use scratch() in the thread of the launches; the rest is for the owner's thread while nothing is launched, or
// for gradients of buckets that are not launched yet. Its space must outlive it.
class GradientBuckets {
  public:
    // own: the caller's memory for the gradient of each parameter; null: it lives in its bucket.
    static Result<GradientBuckets> make(MemorySpace& space, std::vector<TensorFacts> parameters,
                                        const std::vector<std::vector<int>>& assignment, std::vector<void*> own);

    const BucketLayout& layout() const { return layout_; }
    std::span<const TensorFacts> parameters() const { return parameters_; }
    void* own(int parameter) const { return own_[size_t(parameter)]; }
    bool has_own() const { return has_own_; }
    // The number of rebuilds that moved gradients.
    uint64_t version() const { return version_; }
    void* gradient(int parameter) const { return memory_.data() + place(parameter).begin_bytes; }
    void* bucket(int index) const { return memory_.data() + layout_.buckets[size_t(index)].begin_bytes; }

    Status copy_in(int parameter, const void* gradient);
    Status copy_out(int parameter, void* gradient) const;
    Status zero(int parameter);
    // Also the caller's own.
    Status zero_all();
    // Moves the gradients to the buckets of another assignment.
    Status rebuild(const std::vector<std::vector<int>>& assignment);
    // Memory that belongs to a bucket until the next rebuild. Larger memory begins with the old contents.
    Result<void*> scratch(int bucket, size_t bytes) { return grown(scratch_[size_t(bucket)], bytes); }
    // The same for built-in hooks, which a caller's hook may call.
    Result<void*> own_scratch(int bucket, size_t bytes) { return grown(own_scratch_[size_t(bucket)], bytes); }
    // No hook uses memory any more that larger memory has replaced.
    Status end_hook();

  private:
    Result<void*> grown(FlatBuffer& memory, size_t bytes);
    const Place& place(int parameter) const { return layout_.places[size_t(parameter)]; }

    MemorySpace* space_ = nullptr;
    std::vector<TensorFacts> parameters_;
    std::vector<void*> own_;  // of each parameter
    bool has_own_ = false;
    BucketLayout layout_;
    FlatBuffer memory_;
    std::vector<FlatBuffer> scratch_, own_scratch_;  // of each bucket
    std::vector<FlatBuffer> replaced_;               // the hook in progress may still use it
    uint64_t version_ = 0;
};

}  // namespace weft::internal::train
