// plan.hpp: which rank writes which box of a checkpoint, and which boxes a rank reads. Values, without I/O.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/checkpoint/metadata.hpp"

namespace weft::internal::train {

// For each rank's boxes, whether the rank writes it. Equal boxes of several ranks are written once, by the one of them
// that has the fewest bytes so far. Fails if the boxes of a tensor overlap, do not cover it, or differ in shape or type.
Result<std::vector<std::vector<bool>>> assign_writers(const std::vector<std::vector<StoredBox>>& ranks);

// The boxes of a checkpoint by their tensors. Keeps a pointer to the metadata.
class TensorIndex {
  public:
    TensorIndex() = default;
    explicit TensorIndex(const Metadata& metadata);
    using Boxes = std::vector<const StoredBox*>;
    const std::map<std::string, Boxes>& tensors() const { return tensors_; }
    // Null: the checkpoint has no such tensor.
    const Boxes* find(const std::string& tensor) const;

  private:
    std::map<std::string, Boxes> tensors_;
};

// A complete checkpoint, whose metadata was read. Movable: the index points to the metadata's boxes.
struct OpenedCheckpoint {
    std::string folder;  // absolute. Empty: none
    Metadata metadata;
    TensorIndex index;

    // The text of the folder's metadata, which is verified. Fails if it is not what a save writes.
    Status read(const std::string& text);
    int ranks() const { return int(metadata.file_bytes.size()); }
};

// The part of a stored box that is read.
struct Read {
    const StoredBox* stored = nullptr;
    Box part;
};
// In the order of the elements. Of equal boxes, as copies in memory have them, it reads one: that of rank wanted.rank
// if there is one. Fails if the checkpoint has no such tensor, or one of another shape or type, or does
// not hold all of the box. `folder` names the checkpoint in errors.
Result<std::vector<Read>> plan_reads(const TensorIndex& index, const StoredBox& wanted, const std::string& folder);

}  // namespace weft::internal::train
