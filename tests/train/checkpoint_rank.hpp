// checkpoint_rank.hpp: one rank of a test of checkpoints: tensors cut into random boxes, and the calls of the rank.
#pragma once
#include <weft/train.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "src/base/datatype.hpp"
#include "src/train/checkpoint/box.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {

using train::Box;

// A whole tensor, which no rank of the test needs to have.
struct Whole {
    std::string name;
    weftDataType_t type = weftFloat32;
    std::vector<size_t> shape;
    std::vector<std::byte> bytes;
};

inline Whole random_whole(std::string name, weftDataType_t type, std::vector<size_t> shape, std::mt19937& random) {
    Whole whole{std::move(name), type, std::move(shape), {}};
    whole.bytes.resize(train::volume_of(whole.shape) * size_of(type));
    for (std::byte& each : whole.bytes) each = std::byte(random());
    return whole;
}

// A box in memory of its own.
struct Part {
    const Whole* whole = nullptr;
    Box box;
    std::vector<std::byte> data;

    Part(const Whole& of, Box place) : whole(&of), box(std::move(place)), data(box.volume() * size_of(of.type)) {}
    Box all() const { return {std::vector<size_t>(whole->shape.size()), whole->shape}; }
    // The elements of the whole, one by one.
    std::vector<std::byte> wanted() const {
        const size_t element = size_of(whole->type);
        std::vector<std::byte> cut;
        std::vector<size_t> place = box.offsets;
        for (size_t i = 0; i < box.volume(); ++i) {
            size_t rest = i, at = 0, factor = 1;
            for (size_t d = box.extents.size(); d-- > 0;) {
                at += factor * (box.offsets[d] + rest % box.extents[d]);
                rest /= box.extents[d];
                factor *= whole->shape[d];
            }
            cut.insert(cut.end(), whole->bytes.begin() + long(at * element),
                       whole->bytes.begin() + long((at + 1) * element));
        }
        return cut;
    }
    weftTrainBox_t described() {
        weftTrainBox_t made = WEFT_TRAIN_BOX_INITIALIZER;
        made.name = whole->name.c_str();
        made.data = data.data();
        made.datatype = whole->type;
        made.dims = int(whole->shape.size());
        made.shape = whole->shape.data();
        made.offsets = box.offsets.data();
        made.extents = box.extents.data();
        return made;
    }
};

// Cuts a box into disjoint ones.
inline void cut(const Box& box, int depth, std::mt19937& random, std::vector<Box>& parts) {
    std::vector<size_t> possible;
    for (size_t d = 0; d < box.extents.size(); ++d)
        if (box.extents[d] > 1) possible.push_back(d);
    if (depth == 0 || possible.empty()) {
        parts.push_back(box);
        return;
    }
    const size_t d = possible[random() % possible.size()], first = 1 + random() % (box.extents[d] - 1);
    Box left = box, right = box;
    left.extents[d] = first;
    right.offsets[d] += first;
    right.extents[d] -= first;
    cut(left, depth - 1, random, parts);
    cut(right, depth - 1, random, parts);
}

using Parts = std::vector<std::vector<Part>>;  // of each rank

// Boxes that cover all tensors; some of them on several ranks.
inline Parts cover(const std::vector<Whole>& wholes, size_t ranks, std::mt19937& random) {
    Parts parts(ranks);
    for (const Whole& whole : wholes) {
        std::vector<Box> boxes;
        cut({std::vector<size_t>(whole.shape.size()), whole.shape}, int(random() % 4), random, boxes);
        for (const Box& box : boxes) {
            const size_t owner = random() % ranks;
            for (size_t rank = 0; rank < ranks; ++rank)
                if (rank == owner || random() % 4 == 0) {
                    parts[rank].emplace_back(whole, box);
                    parts[rank].back().data = parts[rank].back().wanted();
                }
        }
    }
    return parts;
}

// Any boxes: overlapping, empty.
inline Parts any_boxes(const std::vector<Whole>& wholes, size_t ranks, std::mt19937& random) {
    Parts parts(ranks);
    for (std::vector<Part>& own : parts)
        for (const Whole& whole : wholes) {
            Box box;
            for (const size_t length : whole.shape) {
                const size_t a = random() % (length + 1), b = random() % (length + 1);
                box.offsets.push_back(std::min(a, b));
                box.extents.push_back(std::max(a, b) - std::min(a, b));
            }
            if (random() % 5 > 0) own.emplace_back(whole, box);
        }
    return parts;
}

// A checkpoint object of one rank, and its calls.
class Keeper {
  public:
    explicit Keeper(weftComm_t comm) { check(weftTrainCheckpointCreate(&checkpoint_, comm)); }
    Keeper(const Keeper&) = delete;
    ~Keeper() { (void)weftTrainCheckpointDestroy(checkpoint_); }

    weftTrainCheckpoint_t get() const { return checkpoint_; }
    weftResult_t save(const std::string& folder, std::vector<Part>& parts,
                      const std::vector<weftTrainItem_t>& items = {}, weftTrainSave_t mode = weftTrainSaveBlocking) {
        const auto boxes = described(parts);
        return weftTrainCheckpointSave(checkpoint_, folder.c_str(), boxes.data(), boxes.size(), items.data(),
                                       items.size(), mode);
    }
    weftResult_t load(const std::string& folder, std::vector<Part>& parts) {
        const auto boxes = described(parts);
        return weftTrainCheckpointLoad(checkpoint_, folder.c_str(), boxes.data(), boxes.size());
    }
    void check(weftResult_t result) {
        if (result != weftSuccess) complain(weftGetLastError(nullptr));
    }
    // The id of the call's error, and the rank it names.
    void expect(weftResult_t result, const std::string& id, int rank = -1) {
        const std::string seen_id = result == weftSuccess ? "none" : last_error().id;
        if (seen_id != id) complain("the id is " + seen_id + ", not " + id + ": " + weftGetLastError(nullptr));
        if (rank >= 0 && last_error().failedRank != rank)
            complain("another rank is named than " + std::to_string(rank));
    }
    void complain(const std::string& text) {
        if (wrong.empty()) wrong = text;
    }
    std::string wrong;

  private:
    static std::vector<weftTrainBox_t> described(std::vector<Part>& parts) {
        std::vector<weftTrainBox_t> boxes;
        for (Part& each : parts) boxes.push_back(each.described());
        return boxes;
    }
    weftTrainCheckpoint_t checkpoint_ = nullptr;
};

inline weftTrainItem_t item(const char* name, const void* data, size_t bytes, bool per_rank) {
    weftTrainItem_t made = WEFT_TRAIN_ITEM_INITIALIZER;
    made.name = name;
    made.data = data;
    made.bytes = bytes;
    made.perRank = per_rank ? 1 : 0;
    return made;
}

// Runs body(keeper, rank) on threads, each with an object of its own.
template <class Body>
void on_keepers(int ranks, Body&& body) {
    for (const std::string& wrong : on_threads(ranks, nullptr, [&](weftComm_t comm, int rank) {
             Keeper keeper(comm);
             body(keeper, rank);
             // A rank that ends while others are in a call would end those, too.
             keeper.check(weftBarrier(comm, nullptr));
             return keeper.wrong;
         }))
        CHECK(wrong == "");
}

inline std::vector<Whole> wholes_of_all_types(std::mt19937& random) {
    std::vector<Whole> wholes;
    for (int type = 0; type < weftNumTypes; ++type) {
        std::vector<size_t> shape(random() % 4);
        for (size_t& length : shape) length = 1 + random() % 7;
        wholes.push_back(random_whole("tensor/" + std::to_string(type), weftDataType_t(type), shape, random));
    }
    wholes.push_back(random_whole("none", weftFloat32, {3, 0}, random));
    wholes.push_back(random_whole("scalar", weftFloat64, {}, random));
    // Several blocks of a checksum, cut in columns.
    wholes.push_back(random_whole("large", weftFloat32, {301, 1999}, random));
    return wholes;
}

// A small model of two ranks: one tensor in rows, one on both.
struct SmallModel {
    std::mt19937 random{5};
    Whole weight = random_whole("weight", weftFloat32, {5, 3}, random);
    Whole bias = random_whole("bias", weftFloat64, {7}, random);
    std::vector<Part> parts(int rank, bool filled = true) const {
        std::vector<Part> made;
        made.emplace_back(weight, rank == 0 ? Box{{0, 0}, {2, 3}} : Box{{2, 0}, {3, 3}});
        made.emplace_back(bias, Box{{0}, {7}});
        if (filled)
            for (Part& each : made) each.data = each.wanted();
        return made;
    }
};

inline bool exists(const std::string& name) { return std::filesystem::exists(name); }

}  // namespace weft::internal::test
