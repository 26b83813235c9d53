#include "src/train/checkpoint/box.hpp"

#include <algorithm>

namespace weft::internal::train {

namespace {

// The element of `box` at `place`, counted in the tensor.
size_t element_of(const Box& box, const std::vector<size_t>& place) {
    size_t element = 0;
    for (size_t d = 0; d < place.size(); ++d) element = element * box.extents[d] + place[d] - box.offsets[d];
    return element;
}

// Appends the boxes of a range within `prefix`, whose first `d` dimensions have one place each.
void add_range(const std::vector<size_t>& shape, const Box& prefix, size_t d, size_t begin, size_t count,
               std::vector<Box>& boxes) {
    if (count == 0) return;
    if (d == shape.size()) {
        boxes.push_back(prefix);
        return;
    }
    const size_t row = volume_of({shape.begin() + long(d) + 1, shape.end()});
    const auto add_part = [&](size_t elements) {  // of one row
        Box part = prefix;
        part.offsets[d] = begin / row;
        part.extents[d] = 1;
        add_range(shape, part, d + 1, begin % row, elements, boxes);
        begin += elements;
        count -= elements;
    };
    if (begin % row != 0) add_part(std::min(count, row - begin % row));
    if (count >= row) {
        Box rows = prefix;
        rows.offsets[d] = begin / row;
        rows.extents[d] = count / row;
        boxes.push_back(std::move(rows));
        begin += count / row * row;
        count %= row;
    }
    if (count > 0) add_part(count);
}

}  // namespace

std::vector<Box> boxes_of_range(const std::vector<size_t>& shape, size_t begin, size_t count) {
    std::vector<Box> boxes;
    add_range(shape, {std::vector<size_t>(shape.size()), shape}, 0, begin, count, boxes);
    return boxes;
}

size_t volume_of(const std::vector<size_t>& extents) {
    size_t volume = 1;
    for (const size_t extent : extents) volume *= extent;
    return volume;
}

size_t Box::volume() const { return volume_of(extents); }

std::string text_of(const Box& box) {
    std::string text = "[";
    for (size_t d = 0; d < box.offsets.size(); ++d)
        text += fmt::format("{}{}:{}", d == 0 ? "" : ", ", box.offsets[d], box.offsets[d] + box.extents[d]);
    return text + "]";
}

Box intersection(const Box& left, const Box& right) {
    Box part;
    for (size_t d = 0; d < left.offsets.size(); ++d) {
        const size_t begin = std::max(left.offsets[d], right.offsets[d]);
        const size_t end = std::min(left.offsets[d] + left.extents[d], right.offsets[d] + right.extents[d]);
        part.offsets.push_back(begin);
        part.extents.push_back(end > begin ? end - begin : 0);
    }
    return part;
}

Status for_each_run(const Box& part, const Box& left, const Box& right, const Run& run) {
    if (part.volume() == 0) return ok();
    // Dimensions from `outer` on are one run: all but the first of them are whole in both boxes.
    size_t outer = part.offsets.size(), count = 1;
    while (outer > 0) {
        --outer;
        count *= part.extents[outer];
        if (part.extents[outer] != left.extents[outer] || part.extents[outer] != right.extents[outer]) break;
    }
    std::vector<size_t> place = part.offsets;
    for (;;) {
        WEFT_TRY(run(element_of(left, place), element_of(right, place), count));
        size_t d = outer;
        while (d > 0 && ++place[d - 1] == part.offsets[d - 1] + part.extents[d - 1]) {
            place[d - 1] = part.offsets[d - 1];
            --d;
        }
        if (d == 0) return ok();
    }
}

}  // namespace weft::internal::train
