#include "src/train/checkpoint/metadata.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "src/base/datatype.hpp"
#include "src/train/checkpoint/checksum.hpp"
#include "weft/train.h"

namespace weft::internal::train {

namespace {

using Json = nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr size_t elements_most = size_t(1) << 48;  // as for the boxes of a call
constexpr const char* format_name = "weft checkpoint";
constexpr const char* item_prefix = "item:";

// The names of safetensors, in the order of weftDataType_t.
constexpr const char* type_names[] = {"I8",  "U8",  "I32", "U32",  "I64",     "U64",
                                      "F16", "F32", "F64", "BF16", "F8_E4M3", "F8_E5M2"};
static_assert(std::size(type_names) == weftNumTypes);

// The library converts negative, fractional and large numbers silently.
void check_numbers(const Json& numbers, uint64_t most) {
    for (const Json& each : numbers)
        if (!each.is_number_unsigned() || each.get<uint64_t>() > most)
            throw std::out_of_range("a number is negative, fractional or too large");
}

// The last field of metadata: the checksum of the text before it.
constexpr const char* trailer_begin = ",\"crc32c\":\"";
std::string trailer_of(const std::string& text) {
    return fmt::format("{}{:08x}\"}}", trailer_begin, crc32c(text.data(), text.size()));
}

StoredBox box_of(const Json& json) {
    for (const char* name : {"shape", "offsets", "extents"}) check_numbers(json.at(name), elements_most);
    check_numbers(Json::array({json.at("rank")}), INT32_MAX);
    check_numbers(Json::array({json.at("begin")}), INT64_MAX);
    check_numbers(json.at("crc32c"), UINT32_MAX);
    StoredBox box;
    json.at("tensor").get_to(box.tensor);
    const auto type = std::find(std::begin(type_names), std::end(type_names), json.at("dtype").get<std::string>());
    if (type == std::end(type_names)) throw std::out_of_range("an unknown dtype");
    box.type = weftDataType_t(type - std::begin(type_names));
    json.at("shape").get_to(box.shape);
    json.at("offsets").get_to(box.box.offsets);
    json.at("extents").get_to(box.box.extents);
    json.at("rank").get_to(box.rank);
    json.at("begin").get_to(box.begin);
    json.at("crc32c").get_to(box.checksums);
    return box;
}

// Later code relies on this.
bool is_consistent(const StoredBox& box, size_t files) {
    const size_t dims = box.shape.size();
    if (dims > WEFT_TRAIN_DIMS_MAX || box.box.offsets.size() != dims || box.box.extents.size() != dims) return false;
    size_t elements = 1;
    for (size_t d = 0; d < dims; ++d) {
        const size_t length = box.shape[d];
        if (box.box.extents[d] > length || box.box.offsets[d] > length - box.box.extents[d]) return false;
        if (length > 0 && elements > elements_most / length) return false;
        elements *= length;
    }
    const size_t blocks = (box.bytes() + checksum_block_bytes - 1) / checksum_block_bytes;
    return box.rank >= 0 && size_t(box.rank) < files && (box.checksums.empty() || box.checksums.size() == blocks);
}

}  // namespace

size_t StoredBox::bytes() const { return box.volume() * size_of(type); }

std::string data_file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

std::string item_name(const std::string& name, int rank) {
    return rank < 0 ? fmt::format("{}all:{}", item_prefix, name) : fmt::format("{}{}:{}", item_prefix, rank, name);
}
bool is_item_name(const std::string& name) { return name.starts_with(item_prefix); }

std::optional<ItemFacts> item_of(const std::string& stored) {
    if (!is_item_name(stored)) return {};
    const size_t begin = std::string(item_prefix).size(), end = stored.find(':', begin);
    if (end == std::string::npos) return {};
    const std::string owner = stored.substr(begin, end - begin);
    ItemFacts facts{stored.substr(end + 1), -1};
    if (owner != "all") std::from_chars(owner.data(), owner.data() + owner.size(), facts.rank);
    if (item_name(facts.name, facts.rank) != stored) return {};
    return facts;
}

bool is_text(const std::string& name) {
    try {
        (void)Json(name).dump();
        return true;
    } catch (const Json::exception&) {
        return false;
    }
}

std::string to_json(const Metadata& metadata) {
    Json boxes = Json::array();
    for (const StoredBox& box : metadata.boxes)
        boxes.push_back({{"tensor", box.tensor},
                         {"dtype", type_names[box.type]},
                         {"shape", box.shape},
                         {"offsets", box.box.offsets},
                         {"extents", box.box.extents},
                         {"rank", box.rank},
                         {"begin", box.begin},
                         {"crc32c", box.checksums}});
    const Json json = {{"format", format_name},
                       {"version", format_version},
                       {"save", metadata.save},
                       {"block_bytes", checksum_block_bytes},
                       {"file_bytes", metadata.file_bytes},
                       {"boxes", std::move(boxes)}};
    return sealed(json.dump());
}

std::string sealed(std::string json) {
    json.pop_back();
    return json + trailer_of(json);
}

Result<Metadata> metadata_of(const std::string& text, const std::string& source) {
    const auto damaged = [&](const char* objection) {
        return fail(error::train_checkpoint_damaged,
                    "{} is not the metadata of a checkpoint of this version of Weft: {}. Load an older checkpoint",
                    source, objection);
    };
    const std::string body = text.substr(0, text.rfind(trailer_begin));
    if (body + trailer_of(body) != text) return damaged("its checksum differs");
    try {
        const Json json = Json::parse(text);
        if (json.at("format") != format_name || json.at("version") != format_version ||
            json.at("block_bytes") != checksum_block_bytes)
            return damaged("its format or version is another one");
        Metadata metadata;
        json.at("save").get_to(metadata.save);
        check_numbers(json.at("file_bytes"), INT64_MAX);
        json.at("file_bytes").get_to(metadata.file_bytes);
        for (const Json& each : json.at("boxes")) {
            metadata.boxes.push_back(box_of(each));
            if (!is_consistent(metadata.boxes.back(), metadata.file_bytes.size()))
                return damaged("a box lies outside its tensor");
        }
        return metadata;
    } catch (const Json::exception& wrong) {
        return damaged(wrong.what());
    } catch (const std::out_of_range& wrong) {
        return damaged(wrong.what());
    }
}

std::string header_begin(const std::string& save) {
    const std::string text = Json{{"__metadata__", {{"weft_save", save}}}}.dump();
    return text.substr(0, text.size() - 1);
}

std::string safetensors_header(const std::vector<StoredBox>& boxes, const std::string& save) {
    Json json = Json::object();
    if (!save.empty()) json["__metadata__"] = {{"weft_save", save}};
    size_t begin = 0;
    for (const StoredBox& box : boxes) {
        const bool whole = box.box.extents == box.shape;
        json[whole ? box.tensor : box.tensor + text_of(box.box)] = {{"dtype", type_names[box.type]},
                                                                    {"shape", box.box.extents},
                                                                    {"data_offsets", {begin, begin + box.bytes()}}};
        begin += box.bytes();
    }
    std::string text = json.dump();
    text.append((8 - text.size() % 8) % 8, ' ');  // so that data is aligned
    char length[8];
    for (int i = 0; i < 8; ++i) length[i] = char(uint64_t(text.size()) >> (8 * i));
    return std::string(length, 8) + text;
}

}  // namespace weft::internal::train
