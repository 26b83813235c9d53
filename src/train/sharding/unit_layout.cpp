#include "src/train/sharding/unit_layout.hpp"

#include <algorithm>

#include "src/base/datatype.hpp"

namespace weft::internal::train {

namespace {

size_t rounded_up(size_t number, size_t multiple) { return (number + multiple - 1) / multiple * multiple; }
size_t row_count(const TensorFacts& facts) { return facts.rows > 0 ? facts.rows : facts.count; }
size_t row_elements(const TensorFacts& facts) { return facts.rows > 0 ? facts.count / facts.rows : 1; }

}  // namespace

Rows rows_of(size_t rows, int ranks, int rank) {
    const size_t each = (rows + size_t(ranks) - 1) / size_t(ranks);
    const size_t begin = std::min(rows, each * size_t(rank));
    return {begin, std::min(rows - begin, each)};
}

UnitLayout::UnitLayout(std::vector<TensorFacts> parameters, int ranks, Sharding sharding, size_t alignment)
    : parameters_(std::move(parameters)), ranks_(ranks), sharding_(sharding) {
    // The largest elements first: then all are aligned without padding between them.
    for (int i = 0; i < int(parameters_.size()); ++i) {
        const weftDataType_t type = parameters_[size_t(i)].type;
        const auto same =
            std::find_if(segments_.begin(), segments_.end(), [&](const Segment& each) { return each.type == type; });
        if (same == segments_.end())
            segments_.push_back({type, {i}, 0, 0, {}, {}});
        else
            same->parameters.push_back(i);
    }
    std::stable_sort(segments_.begin(), segments_.end(), [](const Segment& left, const Segment& right) {
        return size_of(left.type) > size_of(right.type);
    });
    whole_offsets_.resize(parameters_.size());
    for (Segment& segment : segments_) {
        segment.whole_offset = whole_bytes_;
        for (const int parameter : segment.parameters) {
            whole_offsets_[size_t(parameter)] = whole_bytes_;
            segment.whole_count += parameters_[size_t(parameter)].count;
            whole_bytes_ += parameters_[size_t(parameter)].count * size_of(segment.type);
        }
        segment.counts.resize(size_t(ranks));
        segment.shard_offsets.resize(size_t(ranks));
    }
    if (sharding == Sharding::flat)
        place_flat(alignment);
    else
        place_rows();
}

void UnitLayout::place_flat(size_t alignment) {
    shard_bytes_ = rounded_up((whole_bytes_ + size_t(ranks_) - 1) / size_t(ranks_), alignment);
    padding_bytes_ = shard_bytes_ * size_t(ranks_) - whole_bytes_;
    whole_bytes_ += padding_bytes_;
    for (Segment& segment : segments_) {
        // The padding, which is zeros, belongs to the last one: the parts of a unit of one type are equal then.
        const bool is_last = &segment == &segments_.back();
        const size_t end = is_last ? whole_bytes_ : segment.whole_offset + segment.whole_count * size_of(segment.type);
        for (size_t rank = 0; rank < size_t(ranks_); ++rank) {
            const size_t shard_begin = rank * shard_bytes_;
            const size_t from = std::clamp(segment.whole_offset, shard_begin, shard_begin + shard_bytes_);
            const size_t to = std::clamp(end, shard_begin, shard_begin + shard_bytes_);
            segment.counts[rank] = (to - from) / size_of(segment.type);
            segment.shard_offsets[rank] = from - shard_begin;
        }
    }
}

void UnitLayout::place_rows() {
    shard_offsets_.resize(parameters_.size());
    for (Segment& segment : segments_) {
        const size_t begin = shard_bytes_;
        for (const int parameter : segment.parameters) {
            const TensorFacts& facts = parameters_[size_t(parameter)];
            shard_offsets_[size_t(parameter)] = shard_bytes_;
            // The first rank has the most rows; the others are padded to them.
            shard_bytes_ += rows_of(row_count(facts), ranks_, 0).count * row_elements(facts) * size_of(facts.type);
        }
        for (size_t rank = 0; rank < size_t(ranks_); ++rank) {
            segment.counts[rank] = (shard_bytes_ - begin) / size_of(segment.type);
            segment.shard_offsets[rank] = begin;
        }
    }
}

Piece UnitLayout::piece(int parameter, int rank) const {
    const TensorFacts& facts = parameters_[size_t(parameter)];
    if (sharding_ == Sharding::rows) {
        const Rows rows = rows_of(row_count(facts), ranks_, rank);
        return {rows.begin * row_elements(facts), rows.count * row_elements(facts), shard_offsets_[size_t(parameter)]};
    }
    const size_t size = size_of(facts.type);
    const size_t begin = whole_offset(parameter), end = begin + facts.count * size;
    const size_t shard_begin = size_t(rank) * shard_bytes_;
    const size_t from = std::clamp(begin, shard_begin, shard_begin + shard_bytes_);
    const size_t to = std::clamp(end, shard_begin, shard_begin + shard_bytes_);
    if (from == to) return {};
    return {(from - begin) / size, (to - from) / size, from - shard_begin};
}

}  // namespace weft::internal::train
