#include "src/train/gradient_buckets.hpp"

#include <algorithm>
#include <utility>

namespace weft::internal::train {

Result<GradientBuckets> GradientBuckets::make(MemorySpace& space, std::vector<TensorFacts> parameters,
                                              const std::vector<std::vector<int>>& assignment, std::vector<void*> own) {
    GradientBuckets buckets;
    buckets.space_ = &space;
    buckets.parameters_ = std::move(parameters);
    buckets.has_own_ = std::any_of(own.begin(), own.end(), [](const void* memory) { return memory; });
    buckets.own_ = std::move(own);
    buckets.layout_ = lay_out(buckets.parameters_, assignment);
    auto memory = FlatBuffer::allocate(space, most_layout_bytes(buckets.parameters_));
    if (!memory) return memory.take_status();
    buckets.memory_ = std::move(*memory);
    buckets.scratch_.resize(buckets.layout_.buckets.size());
    buckets.own_scratch_.resize(buckets.layout_.buckets.size());
    return buckets;
}

Status GradientBuckets::copy_in(int parameter, const void* from) {
    return space_->copy(gradient(parameter), from, place(parameter).bytes);
}

Status GradientBuckets::copy_out(int parameter, void* to) const {
    return space_->copy(to, gradient(parameter), place(parameter).bytes);
}

Status GradientBuckets::zero(int parameter) { return space_->zero(gradient(parameter), place(parameter).bytes); }

Status GradientBuckets::zero_all() {
    for (size_t i = 0; i < own_.size(); ++i)
        if (own_[i]) WEFT_TRY(space_->zero(own_[i], layout_.places[i].bytes));
    return space_->zero(memory_.data(), layout_.bytes);
}

Status GradientBuckets::rebuild(const std::vector<std::vector<int>>& assignment) {
    bool same = assignment.size() == layout_.buckets.size();
    for (size_t i = 0; same && i < assignment.size(); ++i) same = assignment[i] == layout_.buckets[i].parameters;
    if (same) return ok();
    // Their memory stays: a caller may still hold an old address.
    auto old = FlatBuffer::allocate(*space_, layout_.bytes);
    if (!old) return old.take_status();
    WEFT_TRY(space_->copy(old->data(), memory_.data(), layout_.bytes));
    const BucketLayout before = std::exchange(layout_, lay_out(parameters_, assignment));
    for (size_t i = 0; i < parameters_.size(); ++i)
        WEFT_TRY(copy_in(int(i), old->data() + before.places[i].begin_bytes));
    WEFT_TRY(space_->synchronize());  // before the copy is freed, and the hooks' memory
    for (std::vector<FlatBuffer>* const scratch : {&scratch_, &own_scratch_}) {
        scratch->clear();
        scratch->resize(layout_.buckets.size());
    }
    ++version_;
    return ok();
}

Result<void*> GradientBuckets::grown(FlatBuffer& memory, size_t bytes) {
    if (memory.bytes() >= bytes) return static_cast<void*>(memory.data());
    auto larger = FlatBuffer::allocate(*space_, bytes);
    if (!larger) return larger.take_status();
    WEFT_TRY(space_->copy(larger->data(), memory.data(), memory.bytes()));
    replaced_.push_back(std::exchange(memory, std::move(*larger)));
    return static_cast<void*>(memory.data());
}

Status GradientBuckets::end_hook() {
    if (replaced_.empty()) return ok();
    WEFT_TRY(space_->synchronize());
    replaced_.clear();
    return ok();
}

}  // namespace weft::internal::train
