#include "src/train/bucket_layout.hpp"

#include <algorithm>
#include <map>

#include "src/base/datatype.hpp"

namespace weft::internal::train {

namespace {

// Two buckets share no cache line, and none of the larger pairs of lines that processors prefetch.
constexpr size_t bucket_alignment = 128;

struct Open {
    std::vector<int> tensors;
    size_t bytes = 0;
    size_t limit = 0;  // index in the limits
};

}  // namespace

std::vector<std::vector<int>> assign_buckets(std::span<const TensorFacts> tensors, std::span<const size_t> limits,
                                             std::span<const int> order) {
    struct Closed {
        std::vector<int> tensors;
        size_t first_place, last_place;
    };
    std::vector<Closed> closed;
    std::map<weftDataType_t, Open> open;
    std::vector<size_t> place_of(tensors.size());
    const auto close = [&](Open& bucket) {
        closed.push_back({std::move(bucket.tensors), 0, 0});
        closed.back().first_place = place_of[size_t(closed.back().tensors.front())];
        closed.back().last_place = place_of[size_t(closed.back().tensors.back())];
        bucket.tensors.clear();
        bucket.bytes = 0;
        bucket.limit = std::min(bucket.limit + 1, limits.size() - 1);
    };
    for (size_t place = 0; place < tensors.size(); ++place) {
        const int index = order.empty() ? int(place) : order[place];
        const TensorFacts& tensor = tensors[size_t(index)];
        place_of[size_t(index)] = place;
        Open& bucket = open[tensor.type];
        bucket.tensors.push_back(index);
        bucket.bytes += tensor.count * size_of(tensor.type);
        if (bucket.bytes >= limits[bucket.limit]) close(bucket);
    }
    for (auto& [type, bucket] : open)
        if (!bucket.tensors.empty()) close(bucket);
    std::sort(closed.begin(), closed.end(), [&](const Closed& left, const Closed& right) {
        return order.empty() ? left.first_place < right.first_place : left.last_place < right.last_place;
    });
    std::vector<std::vector<int>> buckets;
    for (Closed& bucket : closed) buckets.push_back(std::move(bucket.tensors));
    return buckets;
}

bool is_permutation_of_indices(std::vector<int> order) {
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i)
        if (order[i] != int(i)) return false;
    return true;
}

std::vector<size_t> bucket_limits(size_t cap_bytes) {
    constexpr size_t mebibyte = size_t(1) << 20;
    if (cap_bytes > 0) return {cap_bytes};
    return {mebibyte, 25 * mebibyte};
}

size_t most_layout_bytes(std::span<const TensorFacts> tensors) {
    size_t bytes = 0;
    for (const TensorFacts& tensor : tensors)
        if (tensor.count > 0) bytes += tensor.count * size_of(tensor.type) + bucket_alignment;
    return bytes;
}

BucketLayout lay_out(std::span<const TensorFacts> tensors, const std::vector<std::vector<int>>& assignment) {
    BucketLayout layout;
    layout.places.resize(tensors.size());
    for (const std::vector<int>& members : assignment) {
        Bucket bucket;
        bucket.type = tensors[size_t(members.front())].type;
        bucket.begin_bytes = layout.bytes;
        const size_t element_bytes = size_of(bucket.type);
        for (const int index : members) {
            const size_t count = tensors[size_t(index)].count;
            layout.places[size_t(index)] = {int(layout.buckets.size()),
                                            bucket.begin_bytes + bucket.count * element_bytes, count * element_bytes};
            bucket.offsets.push_back(bucket.count);
            bucket.count += count;
        }
        bucket.parameters = members;
        layout.bytes += (bucket.count * element_bytes + bucket_alignment - 1) / bucket_alignment * bucket_alignment;
        layout.buckets.push_back(std::move(bucket));
    }
    return layout;
}

}  // namespace weft::internal::train
