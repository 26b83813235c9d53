// The rules of checkpoints without communication: boxes, assignments, plans of reads, metadata, checksums.
#include <algorithm>
#include <numeric>
#include <random>

#include "src/train/checkpoint/checksum.hpp"
#include "src/train/checkpoint/plan.hpp"
#include "src/train/checkpoint/save_id.hpp"
#include "src/train/checkpoint/stored.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using namespace weft::internal::train;

namespace {

StoredBox box(std::string tensor, std::vector<size_t> shape, Box place, int rank = 0) {
    return {std::move(tensor), weftFloat32, std::move(shape), std::move(place), rank, 0, {}};
}

// Rows of [rows, 4], `step` for each rank.
Metadata rows(size_t all, size_t step) {
    Metadata metadata;
    for (size_t begin = 0; begin < all; begin += step) {
        metadata.boxes.push_back(
            box("w", {all, 4}, {{begin, 0}, {std::min(step, all - begin), 4}}, int(metadata.file_bytes.size())));
        metadata.file_bytes.push_back(0);
    }
    return metadata;
}

std::string text_of(const std::vector<Read>& reads) {
    std::string text;
    for (const Read& each : reads)
        text += fmt::format("s{}[{}:{}] ", each.stored->rank, each.part.offsets[0] - each.stored->box.offsets[0],
                            each.part.offsets[0] - each.stored->box.offsets[0] + each.part.extents[0]);
    return text;
}

Box random_box(const std::vector<size_t>& shape, std::mt19937& random) {
    Box made;
    for (const size_t length : shape) {
        const size_t a = random() % (length + 1), b = random() % (length + 1);
        made.offsets.push_back(std::min(a, b));
        made.extents.push_back(std::max(a, b) - std::min(a, b));
    }
    return made;
}

}  // namespace

TEST_CASE("CRC-32C is that of iSCSI, with and without the instruction") {
    CHECK(crc32c("123456789", 9) == 0xe3069283u);
    std::mt19937 random(7);
    std::vector<uint8_t> bytes(200);
    for (uint8_t& each : bytes) each = uint8_t(random());
    for (size_t begin = 0; begin < 9; ++begin)
        for (size_t count = 0; count + begin <= bytes.size(); count += 3)
            CHECK(crc32c(bytes.data() + begin, count) == crc32c_portable(bytes.data() + begin, count));
}

TEST_CASE("three ranks read the rows of four") {
    const Metadata metadata = rows(10, 3);
    const TensorIndex index(metadata);
    const std::string golden[] = {"s0[0:3] s1[0:1] ", "s1[1:3] s2[0:2] ", "s2[2:3] s3[0:1] "};
    for (size_t rank = 0; rank < 3; ++rank) {
        const size_t begin = 4 * rank;
        const auto reads =
            plan_reads(index, box("w", {10, 4}, {{begin, 0}, {std::min<size_t>(4, 10 - begin), 4}}), "c");
        REQUIRE(reads);
        CHECK(text_of(*reads) == golden[rank]);
    }
}

TEST_CASE("a plan names the first difference between model and checkpoint") {
    const Metadata metadata = rows(10, 3);
    const TensorIndex index(metadata);
    CHECK_ERROR(plan_reads(index, box("v", {10, 4}, {{0, 0}, {1, 4}}), "c"), "train.checkpoint-model");
    CHECK_ERROR(plan_reads(index, box("w", {10, 5}, {{0, 0}, {1, 5}}), "c"), "train.checkpoint-model");
    StoredBox other = box("w", {10, 4}, {{0, 0}, {1, 4}});
    other.type = weftFloat64;
    CHECK_ERROR(plan_reads(index, other, "c"), "train.checkpoint-model");
    Metadata hole = rows(10, 3);
    hole.boxes.erase(hole.boxes.begin() + 1);
    CHECK_ERROR(plan_reads(TensorIndex(hole), box("w", {10, 4}, {{0, 0}, {10, 4}}), "c"), "train.checkpoint-damaged");
    CHECK(plan_reads(TensorIndex(hole), box("w", {10, 4}, {{6, 0}, {4, 4}}), "c"));
    // Overlap and gap of equal size: rows 3 and 5 of 0:3, 2:5, 6:9, 9:10.
    Metadata moved = rows(10, 3);
    moved.boxes[1].box.offsets[0] = 2;
    CHECK_ERROR(plan_reads(TensorIndex(moved), box("w", {10, 4}, {{0, 0}, {6, 4}}), "c"), "train.checkpoint-damaged");
    moved.boxes.push_back(moved.boxes[1]);
    moved.boxes.back().box = {{5, 0}, {1, 4}};
    CHECK_ERROR(plan_reads(TensorIndex(moved), box("w", {10, 4}, {{0, 0}, {6, 4}}), "c"), "train.checkpoint-damaged");
    CHECK(plan_reads(TensorIndex(moved), box("w", {10, 4}, {{3, 0}, {7, 4}}), "c"));
}

TEST_CASE("equal boxes are written once, and the bytes are spread over the ranks") {
    std::vector<std::vector<StoredBox>> ranks(4);
    for (std::vector<StoredBox>& boxes : ranks)
        for (int tensor = 0; tensor < 8; ++tensor)
            boxes.push_back(box("t" + std::to_string(tensor), {16}, {{0}, {16}}));
    const auto writers = assign_writers(ranks);
    REQUIRE(writers);
    for (size_t tensor = 0; tensor < 8; ++tensor) {
        int copies = 0;
        for (const std::vector<bool>& mask : *writers) copies += mask[tensor] ? 1 : 0;
        CHECK(copies == 1);
    }
    for (const std::vector<bool>& mask : *writers) CHECK(std::count(mask.begin(), mask.end(), true) == 2);
}

TEST_CASE("boxes that overlap, leave gaps or differ are refused, with their ranks") {
    const auto assigned = [](std::vector<std::vector<StoredBox>> ranks) { return assign_writers(ranks); };
    CHECK_ERROR(assigned({{box("w", {10}, {{0}, {6}})}, {box("w", {10}, {{5}, {5}})}}), "train.checkpoint-boxes", 1, 0);
    CHECK_ERROR(assigned({{box("w", {4, 4}, {{0, 0}, {4, 2}})}, {box("w", {4, 4}, {{1, 1}, {3, 3}})}}),
                "train.checkpoint-boxes", 1, 0);
    CHECK_ERROR(assigned({{box("w", {10}, {{0}, {5}})}, {box("w", {10}, {{6}, {4}})}}), "train.checkpoint-boxes");
    CHECK_ERROR(assigned({{box("w", {10}, {{0}, {10}})}, {}, {box("w", {9}, {{0}, {9}})}}), "train.checkpoint-boxes", 2,
                0);
    // Overlap and gap of equal size.
    CHECK_ERROR(assigned({{box("w", {4}, {{0}, {2}})}, {box("w", {4}, {{1}, {2}})}}), "train.checkpoint-boxes", 1, 0);
    CHECK(assigned({{box("w", {10}, {{0}, {10}})}, {box("w", {10}, {{3}, {0}})}}));
    CHECK(assigned({{box("scalar", {}, {{}, {}})}, {box("scalar", {}, {{}, {}})}}));
    CHECK(assigned({{box("none", {0, 3}, {{0, 0}, {0, 3}})}, {box("none", {0, 3}, {{0, 0}, {0, 3}})}}));
}

TEST_CASE("runs copy the common part of two boxes") {
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
        std::vector<size_t> shape(1 + random() % 4);
        for (size_t& length : shape) length = 1 + random() % 5;
        const Box left = random_box(shape, random), right = random_box(shape, random);
        const Box part = intersection(left, right);
        std::vector<int> from(left.volume()), to(right.volume(), -1);
        std::iota(from.begin(), from.end(), 0);
        size_t copied = 0, last = 0;
        REQUIRE(for_each_run(part, left, right, [&](size_t a, size_t b, size_t count) {
            REQUIRE((a + count <= from.size() && b + count <= to.size() && a >= last));
            std::copy_n(from.begin() + long(a), count, to.begin() + long(b));
            copied += count;
            last = a + count;
            return ok();
        }));
        REQUIRE(copied == part.volume());
        // Each element of `right`, by its place.
        for (size_t i = 0; i < to.size(); ++i) {
            size_t rest = i, in_left = 0, factor = 1;
            bool inside = true;
            for (size_t d = shape.size(); d-- > 0;) {
                const size_t place = right.offsets[d] + rest % right.extents[d];
                rest /= right.extents[d];
                inside &= place >= left.offsets[d] && place < left.offsets[d] + left.extents[d];
                in_left += factor * (place - left.offsets[d]);
                factor *= left.extents[d];
            }
            REQUIRE(to[i] == (inside ? int(in_left) : -1));
        }
    }
}

TEST_CASE("a range of elements is boxes one behind the other") {
    std::mt19937 random(12);
    for (int round = 0; round < 500; ++round) {
        std::vector<size_t> shape(random() % 5);
        for (size_t& length : shape) length = 1 + random() % 4;
        const size_t all = volume_of(shape), begin = random() % (all + 1), count = random() % (all - begin + 1);
        const auto boxes = boxes_of_range(shape, begin, count);
        CHECK(boxes.size() <= std::max<size_t>(1, 2 * shape.size() - (shape.empty() ? 0 : 1)));
        const Box whole{std::vector<size_t>(shape.size()), shape};
        size_t next = begin;
        for (const Box& part : boxes)
            REQUIRE(for_each_run(part, whole, part, [&](size_t from, size_t, size_t run) {
                REQUIRE(from == next);
                next += run;
                return ok();
            }));
        REQUIRE(next == begin + count);
    }
    CHECK(boxes_of_range({6, 4}, 8, 12) == std::vector<Box>{{{2, 0}, {3, 4}}});
    CHECK(boxes_of_range({3, 0}, 0, 0).empty());
}

TEST_CASE("metadata is read as it was written, and wrong texts are refused") {
    Metadata metadata = rows(10, 3);
    metadata.save = "0123456789abcdef";
    metadata.file_bytes[2] = uint64_t(1) << 40;
    metadata.boxes[1].tensor = "größe \"x\"\n";
    metadata.boxes[1].begin = 96;
    metadata.boxes[1].checksums = {0xffffffffu};
    const std::string text = to_json(metadata);
    const auto read = metadata_of(text, "text");
    REQUIRE(read);
    CHECK(to_json(*read) == text);
    CHECK(read->save == metadata.save);
    CHECK(read->boxes[1].tensor == metadata.boxes[1].tensor);
    CHECK(read->boxes[3].box == metadata.boxes[3].box);
    CHECK_FALSE(is_text("\xff"));
    for (size_t length = 0; length < text.size(); length += 7)
        CHECK_ERROR(metadata_of(text.substr(0, length), "text"), "train.checkpoint-damaged");
    const std::pair<const char*, const char*> changes[] = {{"\"version\":1", "\"version\":2"},
                                                           {"\"F32\"", "\"F33\""},
                                                           {"\"shape\":[10,4]", "\"shape\":[10]"},
                                                           {"\"extents\":[3,4]", "\"extents\":[13,4]"},
                                                           {"\"rank\":0", "\"rank\":4"},
                                                           {"\"rank\":0", "\"rank\":\"0\""},
                                                           {"\"boxes\"", "\"Boxes\""},
                                                           {"\"0123456789abcdef\"", "7"},
                                                           {"[4294967295]", "[1,2]"},
                                                           // Silent conversions, and volumes beyond 64 bits.
                                                           {"\"rank\":0", "\"rank\":4294967296"},
                                                           {"\"extents\":[3,4]", "\"extents\":[2.9,4]"},
                                                           {"\"begin\":0", "\"begin\":-1"},
                                                           {"\"shape\":[10,4]", "\"shape\":[4294967297,4294967296]"}};
    // One bit of the place of a box.
    std::string moved = text;
    moved[moved.find("\"offsets\":[3") + 11] ^= 2;
    CHECK_ERROR(metadata_of(moved, "text"), "train.checkpoint-damaged");
    for (const auto& [from, to] : changes) {
        std::string changed = text;
        REQUIRE(changed.find(from) != std::string::npos);
        changed.replace(changed.find(from), std::string(from).size(), to);
        CHECK_ERROR(metadata_of(changed, "text"), "train.checkpoint-damaged");
        CHECK_ERROR(metadata_of(sealed(changed.substr(0, changed.rfind(",\"crc32c\":\"")) + "}"), "text"),
                    "train.checkpoint-damaged");
    }
}

TEST_CASE("saves have different ids, and their files begin with them") {
    const std::string id = new_save_id();
    CHECK(id.size() == 16);
    CHECK(id != new_save_id());
    const std::string header = safetensors_header(rows(10, 3).boxes, id);
    CHECK(header.substr(8, header_begin(id).size()) == header_begin(id));
    CHECK(header_begin(id).find(id) != std::string::npos);
}

TEST_CASE("metadata of boxes that no save writes is refused, with tensor and file") {
    const auto checked = [](auto&& change) {
        Metadata metadata = rows(10, 3);
        metadata.boxes.push_back({item_name("step", -1), weftUint8, {8}, {{0}, {8}}, 1, 0, {}});
        for (StoredBox& each : metadata.boxes) {
            each.begin = 100;
            each.checksums = {7};
            metadata.file_bytes[size_t(each.rank)] = 200;
        }
        change(metadata);
        return check_stored(metadata, TensorIndex(metadata), "folder");
    };
    const auto expect = [&](const char* tensor, const char* file, auto&& change) {
        const Status status = checked(change);
        CHECK_ERROR(status, "train.checkpoint-damaged");
        INFO(status.sentence());
        CHECK(status.sentence().find(fmt::format("\"{}\"", tensor)) != std::string::npos);
        CHECK(status.sentence().find(file) != std::string::npos);
    };
    CHECK(checked([](Metadata&) {}));
    CHECK(checked([](Metadata& metadata) { metadata.boxes[1].begin = 200 - 48; }));
    const char *const second = "rank-00001.safetensors", *const third = "rank-00002.safetensors";
    expect("w", second, [](Metadata& metadata) { metadata.boxes[1].begin = 200 - 47; });
    expect("w", second, [](Metadata& metadata) { metadata.boxes[1].begin = INT64_MAX; });
    expect("w", second, [](Metadata& metadata) { metadata.boxes[1].begin = UINT64_MAX - 47; });
    expect("w", second, [](Metadata& metadata) { metadata.boxes[1].checksums.clear(); });
    expect("w", second, [](Metadata& metadata) { metadata.boxes[1].type = weftInt32; });
    expect("w", second, [](Metadata& metadata) { metadata.boxes[1].shape = {11, 4}; });
    // An overlap and a gap of equal size, a gap, the same box twice, an item in two files.
    expect("w", third, [](Metadata& metadata) { metadata.boxes[2].box.offsets[0] = 5; });
    expect("w", "rank-", [](Metadata& metadata) { metadata.boxes.erase(metadata.boxes.begin() + 1); });
    expect("w", third, [](Metadata& metadata) {
        metadata.boxes.push_back(metadata.boxes[1]);
        metadata.boxes.back().rank = 2;
    });
    expect("item:all:step", third, [](Metadata& metadata) {
        metadata.boxes.push_back(metadata.boxes.back());
        metadata.boxes.back().rank = 2;
    });
    expect("item:all:step", second, [](Metadata& metadata) { metadata.boxes.back().type = weftInt8; });
}
