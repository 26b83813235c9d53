// bucket_layout.hpp: which gradients share a bucket, and where each one lies. Values.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "weft/types.h"

namespace weft::internal::train {

struct TensorFacts {
    weftDataType_t type = weftFloat32;
    size_t count = 0;  // elements
    size_t rows = 0;   // of the first dimension, for sharding by rows; 0: each element is a row
};

// PyTorch's rule (compute_bucket_assignment_by_size): tensors are grouped by type. A tensor is added to the open bucket
// of its type, which closes when its bytes reach the limit. Each type advances in `limits`, and the last one repeats.
// Without an `order` the buckets are sorted by their smallest index. Otherwise the tensors are taken in that order, and
// the buckets are sorted by the place of their last tensor, which is when they become full.
std::vector<std::vector<int>> assign_buckets(std::span<const TensorFacts> tensors, std::span<const size_t> limits,
                                             std::span<const int> order = {});
bool is_permutation_of_indices(std::vector<int> order);
// The limits of a caller's cap in bytes; 0: the default ones.
std::vector<size_t> bucket_limits(size_t cap_bytes);

struct Bucket {
    std::vector<int> parameters;
    std::vector<size_t> offsets;  // of each one, in elements from the begin of the bucket
    weftDataType_t type = weftFloat32;
    size_t count = 0;        // elements
    size_t begin_bytes = 0;  // in the flat buffer
};

// Where a parameter's gradient lies.
struct Place {
    int bucket = 0;
    size_t begin_bytes = 0;  // in the flat buffer
    size_t bytes = 0;
};

struct BucketLayout {
    std::vector<Bucket> buckets;  // in the order of the launches
    std::vector<Place> places;    // of each parameter
    size_t bytes = 0;             // of the flat buffer
};
// The bytes of any layout of these tensors at most.
size_t most_layout_bytes(std::span<const TensorFacts> tensors);
BucketLayout lay_out(std::span<const TensorFacts> tensors, const std::vector<std::vector<int>>& assignment);

}  // namespace weft::internal::train
