// box.hpp: boxes of tensors: intersections, and the contiguous runs that a copy between two boxes has.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::train {

// Elements offsets[d] to offsets[d] + extents[d] of each dimension. Its memory is contiguous, the last dimension
// fastest. Without dimensions it is one element.
struct Box {
    std::vector<size_t> offsets, extents;
    bool operator==(const Box&) const = default;
    size_t volume() const;
};

size_t volume_of(const std::vector<size_t>& extents);
// As "[3:6, 0:4]".
std::string text_of(const Box& box);
// Elements begin to begin + count of a tensor, the last dimension fastest, as boxes one behind the other: at most one
// less than two for each dimension. No elements: no box.
std::vector<Box> boxes_of_range(const std::vector<size_t>& shape, size_t begin, size_t count);
// Has no elements if the boxes do not meet.
Box intersection(const Box& left, const Box& right);

// The runs of elements of `part` that are contiguous in both boxes, in the order of their elements. `part` lies in both
// boxes. Stops at the first failure.
using Run = std::function<Status(size_t left, size_t right, size_t count)>;
Status for_each_run(const Box& part, const Box& left, const Box& right, const Run& run);

}  // namespace weft::internal::train
