#include "src/train/checkpoint/overlap.hpp"

#include <algorithm>
#include <set>

namespace weft::internal::train {

std::pair<const Box*, const Box*> overlap_in(std::vector<const Box*> boxes) {
    size_t best = 0, most = 0;
    for (size_t d = 0; !boxes.empty() && d < boxes[0]->offsets.size(); ++d) {
        std::set<size_t> offsets;
        for (const Box* each : boxes) offsets.insert(each->offsets[d]);
        if (offsets.size() <= most) continue;
        most = offsets.size();
        best = d;
    }
    // Without dimensions a box is the whole tensor.
    if (most == 0) return boxes.size() > 1 ? std::pair(boxes[0], boxes[1]) : std::pair<const Box*, const Box*>();
    std::stable_sort(boxes.begin(), boxes.end(),
                     [&](const Box* left, const Box* right) { return left->offsets[best] < right->offsets[best]; });
    for (size_t i = 0; i < boxes.size(); ++i) {
        const size_t end = boxes[i]->offsets[best] + boxes[i]->extents[best];
        for (size_t k = i + 1; k < boxes.size() && boxes[k]->offsets[best] < end; ++k)
            if (intersection(*boxes[i], *boxes[k]).volume() > 0) return {boxes[i], boxes[k]};
    }
    return {};
}

}  // namespace weft::internal::train
