// offload_layout.hpp: where the elements of parts lie in a file of states. The file is an array of chunks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::internal::train {

// Elements `first` to `first` + `count` of a part. In each array of their chunk they begin at element `place`.
struct ChunkPiece {
    size_t part, first, count, place;
    bool operator==(const ChunkPiece&) const = default;
};

// A chunk has a few arrays of chunk_elements() each, one behind the other: one of each state. A piece begins at a block
// of its part, so sums over blocks have the bits of sums over the whole part. A value.
class OffloadLayout {
  public:
    // `counts`: the elements of each part. `chunk_elements` is rounded up to whole blocks.
    OffloadLayout(std::span<const size_t> counts, size_t chunk_elements);

    size_t chunk_elements() const { return chunk_elements_; }
    size_t chunk_count() const { return chunks_.size(); }
    std::span<const ChunkPiece> chunk(size_t number) const {
        return std::span(pieces_).subspan(chunks_[number].first, chunks_[number].count);
    }

  private:
    struct Range {
        size_t first, count;  // of pieces
    };
    size_t chunk_elements_;
    std::vector<ChunkPiece> pieces_;
    std::vector<Range> chunks_;
};

}  // namespace weft::internal::train
