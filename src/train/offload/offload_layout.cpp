#include "src/train/offload/offload_layout.hpp"

#include <algorithm>

#include "src/train/optimizer/parts.hpp"

namespace weft::internal::train {

namespace {

// A piece begins on a cache line.
constexpr size_t line_elements = 16;
constexpr size_t up_to_multiple(size_t count, size_t to) { return (count + to - 1) / to * to; }

}  // namespace

OffloadLayout::OffloadLayout(std::span<const size_t> counts, size_t chunk_elements) {
    // A small model needs no large chunk.
    size_t all = 0;
    for (const size_t count : counts) all += up_to_multiple(count, line_elements);
    chunk_elements_ = up_to_multiple(std::clamp<size_t>(all, 1, std::max<size_t>(chunk_elements, 1)), block_elements);
    size_t used = chunk_elements_;  // of the chunk that is filled
    for (size_t part = 0; part < counts.size(); ++part)
        for (size_t first = 0; first < counts[part];) {
            const size_t left = counts[part] - first, room = chunk_elements_ - used;
            const size_t count = left <= room ? left : room / block_elements * block_elements;
            if (count == 0) {
                chunks_.push_back({pieces_.size(), 0});
                used = 0;
                continue;
            }
            pieces_.push_back({part, first, count, used});
            ++chunks_.back().count;
            first += count;
            used += up_to_multiple(count, line_elements);
        }
}

}  // namespace weft::internal::train
