#include "src/train/checkpoint/plan.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "src/base/datatype.hpp"
#include "src/train/checkpoint/overlap.hpp"

namespace weft::internal::train {

namespace {

// A box of a rank: its index there.
struct Offered {
    const StoredBox* box = nullptr;
    int rank = 0;
    size_t index = 0;
};

std::string facts_of(const StoredBox& box) {
    return fmt::format("shape {} of {}", text_of(Box{std::vector<size_t>(box.shape.size()), box.shape}),
                       name_of(box.type));
}

Status differing(const Offered& left, const Offered& right) {
    return fail(error::train_checkpoint_boxes, "\"{}\" has {} on rank {}, but {} on rank {}", left.box->tensor,
                facts_of(*left.box), left.rank, facts_of(*right.box), right.rank)
        .about({.rank = right.rank, .peer = left.rank});
}

Status overlapping(const Offered& left, const Offered& right) {
    return fail(
               error::train_checkpoint_boxes,
               "the boxes of \"{}\" overlap: rank {} has {}, and rank {} has {}. Pass boxes that are equal or disjoint",
               left.box->tensor, left.rank, text_of(left.box->box), right.rank, text_of(right.box->box))
        .about({.rank = right.rank, .peer = left.rank});
}

bool comes_before(const Offered& left, const Offered& right) {
    const auto key = [](const Offered& each) {
        return std::tie(each.box->box.offsets, each.box->box.extents, each.rank);
    };
    return key(left) < key(right);
}

// `boxes` are sorted and different.
Status check_disjoint(const std::vector<Offered>& boxes) {
    std::vector<const Box*> places;
    for (const Offered& each : boxes) places.push_back(&each.box->box);
    const auto found = overlap_in(std::move(places));
    if (!found.first) return ok();
    const auto offer_of = [&](const Box* box) -> const Offered& {
        return *std::find_if(boxes.begin(), boxes.end(), [&](const Offered& each) { return &each.box->box == box; });
    };
    return overlapping(offer_of(found.first), offer_of(found.second));
}

class Assignment {
  public:
    explicit Assignment(const std::vector<std::vector<StoredBox>>& ranks) : bytes_(ranks.size()) {
        for (const std::vector<StoredBox>& boxes : ranks) writes_.emplace_back(boxes.size());
    }
    // All offers of one tensor.
    Status assign(std::vector<Offered> offers) {
        const StoredBox& first = *offers[0].box;
        for (const Offered& each : offers)
            if (each.box->type != first.type || each.box->shape != first.shape) return differing(offers[0], each);
        const size_t volume = volume_of(first.shape);
        if (volume > 0) std::erase_if(offers, [](const Offered& each) { return each.box->box.volume() == 0; });
        std::stable_sort(offers.begin(), offers.end(), comes_before);
        if (volume == 0) offers.resize(1);
        std::vector<Offered> different;
        size_t stored = 0;
        for (size_t begin = 0, end = 0; begin < offers.size(); begin = end) {
            while (end < offers.size() && offers[end].box->box == offers[begin].box->box) ++end;
            write_once({offers.begin() + long(begin), offers.begin() + long(end)});
            different.push_back(offers[begin]);
            stored += offers[begin].box->box.volume();
        }
        WEFT_TRY(check_disjoint(different));
        if (stored == volume) return ok();
        return fail(error::train_checkpoint_boxes,
                    "the ranks' boxes of \"{}\" hold {} of its {} elements. Pass boxes that cover the whole tensor",
                    first.tensor, stored, volume);
    }
    std::vector<std::vector<bool>> take() { return std::move(writes_); }

  private:
    void write_once(const std::vector<Offered>& equal) {
        const auto least = std::min_element(equal.begin(), equal.end(), [&](const Offered& left, const Offered& right) {
            return bytes_[size_t(left.rank)] < bytes_[size_t(right.rank)];
        });
        writes_[size_t(least->rank)][least->index] = true;
        bytes_[size_t(least->rank)] += least->box->bytes();
    }

    std::vector<std::vector<bool>> writes_;
    std::vector<size_t> bytes_;  // of each rank so far
};

}  // namespace

Result<std::vector<std::vector<bool>>> assign_writers(const std::vector<std::vector<StoredBox>>& ranks) {
    std::map<std::string, std::vector<Offered>> tensors;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
        for (size_t i = 0; i < ranks[rank].size(); ++i)
            tensors[ranks[rank][i].tensor].push_back({&ranks[rank][i], int(rank), i});
    Assignment assignment(ranks);
    for (const auto& [name, offers] : tensors) WEFT_TRY(assignment.assign(offers));
    return assignment.take();
}

TensorIndex::TensorIndex(const Metadata& metadata) {
    for (const StoredBox& box : metadata.boxes) tensors_[box.tensor].push_back(&box);
    for (auto& [name, boxes] : tensors_)
        std::sort(boxes.begin(), boxes.end(), [](const StoredBox* left, const StoredBox* right) {
            return std::tie(left->box.offsets, left->box.extents, left->rank) <
                   std::tie(right->box.offsets, right->box.extents, right->rank);
        });
}

const TensorIndex::Boxes* TensorIndex::find(const std::string& tensor) const {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second;
}

namespace {

const StoredBox* one_of_equal(const TensorIndex::Boxes& equal, int reader) {
    const auto own =
        std::find_if(equal.begin(), equal.end(), [&](const StoredBox* box) { return box->rank == reader; });
    return own == equal.end() ? equal[size_t(reader) % equal.size()] : *own;
}

}  // namespace

Result<std::vector<Read>> plan_reads(const TensorIndex& index, const StoredBox& wanted, const std::string& folder) {
    const TensorIndex::Boxes* const boxes = index.find(wanted.tensor);
    if (!boxes)
        return fail(error::train_checkpoint_model, "the checkpoint {} has no tensor \"{}\"; it has {} tensors", folder,
                    wanted.tensor, index.tensors().size());
    const StoredBox& first = *boxes->front();
    const bool alike = std::all_of(boxes->begin(), boxes->end(), [&](const StoredBox* each) {
        return each->type == wanted.type && each->shape == wanted.shape;
    });
    if (!alike)
        return fail(error::train_checkpoint_model, "\"{}\" has {} in the checkpoint {}, but {} in the model",
                    wanted.tensor, facts_of(first), folder, facts_of(wanted));
    std::vector<Read> reads;
    size_t volume = 0;
    for (size_t begin = 0, end = 0; begin < boxes->size(); begin = end) {
        while (end < boxes->size() && (*boxes)[end]->box == (*boxes)[begin]->box) ++end;
        Box part = intersection(wanted.box, (*boxes)[begin]->box);
        if (part.volume() == 0) continue;
        volume += part.volume();
        reads.push_back(
            {one_of_equal({boxes->begin() + long(begin), boxes->begin() + long(end)}, wanted.rank), std::move(part)});
    }
    std::vector<const Box*> parts;
    for (const Read& each : reads) parts.push_back(&each.part);
    if (overlap_in(std::move(parts)).first)
        return fail(error::train_checkpoint_damaged,
                    "the checkpoint {} holds elements of \"{}\" in two different boxes", folder, wanted.tensor);
    if (volume == wanted.box.volume()) return reads;
    return fail(error::train_checkpoint_damaged, "the checkpoint {} holds {} of {} elements of \"{}\"", folder, volume,
                wanted.box.volume(), wanted.tensor);
}

}  // namespace weft::internal::train
