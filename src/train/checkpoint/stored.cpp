#include "src/train/checkpoint/stored.hpp"

#include <vector>

#include "src/train/checkpoint/overlap.hpp"

namespace weft::internal::train {

namespace {

Status damaged_box(const std::string& folder, const StoredBox& box, const std::string& objection) {
    return fail(error::train_checkpoint_damaged,
                "{}/{} is damaged: the box {} of \"{}\" in {} {}. Load an older checkpoint", folder, metadata_name,
                text_of(box.box), box.tensor, data_file_name(box.rank), objection);
}

Status check_box(const std::string& folder, const StoredBox& box, uint64_t file_bytes) {
    const uint64_t bytes = box.bytes();
    if (bytes > file_bytes || box.begin > file_bytes - bytes)
        return damaged_box(folder, box,
                           fmt::format("has {} bytes from {} on, but the file has {}", bytes, box.begin, file_bytes));
    if (bytes > 0 && box.checksums.empty()) return damaged_box(folder, box, "has no checksums");
    return ok();
}

// Of one tensor.
Status check_boxes(const std::string& folder, const TensorIndex::Boxes& boxes) {
    const StoredBox& first = *boxes.front();
    std::vector<const Box*> places;
    size_t stored = 0;
    for (const StoredBox* each : boxes) {
        if (each->shape != first.shape || each->type != first.type)
            return damaged_box(folder, *each, "has another shape or datatype than " + data_file_name(first.rank));
        places.push_back(&each->box);
        stored += each->box.volume();
    }
    if (is_item_name(first.tensor) &&
        (boxes.size() > 1 || first.shape.size() != 1 || first.type != weftUint8 || !item_of(first.tensor)))
        return damaged_box(folder, *boxes.back(), "is no item: an item is one box of bytes");
    if (const auto found = overlap_in(places); found.second)
        for (const StoredBox* each : boxes)
            if (&each->box == found.second)
                return damaged_box(folder, *each, "overlaps with the box " + text_of(*found.first));
    const size_t volume = volume_of(first.shape);
    if (stored == volume) return ok();
    return damaged_box(folder, *boxes.back(),
                       fmt::format("is the last one, but all boxes hold {} of {} elements", stored, volume));
}

}  // namespace

Status check_stored(const Metadata& metadata, const TensorIndex& index, const std::string& folder) {
    for (const StoredBox& box : metadata.boxes) WEFT_TRY(check_box(folder, box, metadata.file_bytes[size_t(box.rank)]));
    for (const auto& [name, boxes] : index.tensors()) WEFT_TRY(check_boxes(folder, boxes));
    return ok();
}

Status OpenedCheckpoint::read(const std::string& text) {
    auto found = metadata_of(text, folder + "/" + metadata_name);
    if (!found) return found.take_status();
    metadata = std::move(*found);
    index = TensorIndex(metadata);
    return check_stored(metadata, index, folder);
}

}  // namespace weft::internal::train
