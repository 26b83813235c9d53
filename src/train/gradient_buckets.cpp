#include "src/train/gradient_buckets.hpp"

#include <cstring>
#include <utility>

namespace weft::internal::train {

namespace {

// Parameters without elements have no memory: memcpy and memset do not take a null pointer.
void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) memcpy(to, from, bytes);
}

}  // namespace

Result<GradientBuckets> GradientBuckets::make(std::vector<TensorFacts> parameters,
                                              const std::vector<std::vector<int>>& assignment) {
    GradientBuckets buckets;
    buckets.parameters_ = std::move(parameters);
    buckets.layout_ = lay_out(buckets.parameters_, assignment);
    auto memory = FlatBuffer::allocate(most_layout_bytes(buckets.parameters_));
    if (!memory) return memory.take_status();
    buckets.memory_ = std::move(*memory);
    buckets.scratch_.resize(buckets.layout_.buckets.size());
    return buckets;
}

void GradientBuckets::copy_in(int parameter, const void* from) {
    copy(gradient(parameter), from, place(parameter).bytes);
}

void GradientBuckets::copy_out(int parameter, void* to) const { copy(to, gradient(parameter), place(parameter).bytes); }

void GradientBuckets::zero(int parameter) {
    if (place(parameter).bytes > 0) memset(gradient(parameter), 0, place(parameter).bytes);
}

void GradientBuckets::zero_all() {
    if (memory_.bytes() > 0) memset(memory_.data(), 0, memory_.bytes());
}

Status GradientBuckets::rebuild(const std::vector<std::vector<int>>& assignment) {
    bool same = assignment.size() == layout_.buckets.size();
    for (size_t i = 0; same && i < assignment.size(); ++i) same = assignment[i] == layout_.buckets[i].parameters;
    if (same) return ok();
    // Their memory stays: a caller may still hold an old address.
    const std::vector<std::byte> old(memory_.data(), memory_.data() + layout_.bytes);
    const BucketLayout before = std::exchange(layout_, lay_out(parameters_, assignment));
    for (size_t i = 0; i < parameters_.size(); ++i) copy_in(int(i), old.data() + before.places[i].begin_bytes);
    scratch_.clear();
    scratch_.resize(layout_.buckets.size());
    ++version_;
    return ok();
}

Result<void*> GradientBuckets::scratch(int bucket, size_t bytes) {
    FlatBuffer& memory = scratch_[size_t(bucket)];
    if (memory.bytes() < bytes) {
        auto larger = FlatBuffer::allocate(bytes);
        if (!larger) return larger.take_status();
        memory = std::move(*larger);
    }
    return static_cast<void*>(memory.data());
}

}  // namespace weft::internal::train
