// metadata.hpp: the contents of a checkpoint: boxes of tensors with their places and checksums, and its texts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/checkpoint/box.hpp"
#include "weft/types.h"

namespace weft::internal::train {

// Data is read and verified in blocks of this size: small reads of a large box stay cheap, and checksums stay few.
inline constexpr size_t checksum_block_bytes = size_t(1) << 20;
// Its presence means that the checkpoint is complete.
inline constexpr const char* metadata_name = "checkpoint.json";

// A box of a tensor, and its place in a data file once it is stored.
struct StoredBox {
    std::string tensor;
    weftDataType_t type = weftUint8;
    std::vector<size_t> shape;
    Box box;
    int rank = 0;                     // its data file
    uint64_t begin = 0;               // byte of the data file
    std::vector<uint32_t> checksums;  // CRC-32C of each block

    size_t bytes() const;
};

struct Metadata {
    std::string save;                  // the id of the save, which is in all its files. Empty: a message of a rank
    std::vector<uint64_t> file_bytes;  // of the data file of each rank
    std::vector<StoredBox> boxes;
};

// The data file of a rank, in the checkpoint's folder.
std::string data_file_name(int rank);
// An item, such as the step, is stored as a tensor of bytes with a reserved name. rank -1: the item of all ranks.
std::string item_name(const std::string& name, int rank);
bool is_item_name(const std::string& name);
// The name and the rank of an item, of a reserved name. No value: it is no name that item_name() makes.
struct ItemFacts {
    std::string name;
    int rank = -1;
};
std::optional<ItemFacts> item_of(const std::string& stored);
// Whether JSON can hold it: UTF-8.
bool is_text(const std::string& name);
// With a checksum of the whole text.
std::string to_json(const Metadata& metadata);
// The text of an object with its checksum as the last field.
std::string sealed(std::string json);
// `source` names the text in errors.
Result<Metadata> metadata_of(const std::string& text, const std::string& source);
// The header of a safetensors file with its length, for boxes whose data lies one behind the other from the header's
// end on. A box that is not whole has its place in its name. `save` is the id of a save; empty: none.
std::string safetensors_header(const std::vector<StoredBox>& boxes, const std::string& save);
// The first bytes of the header's text, after its length, in a data file of a save.
std::string header_begin(const std::string& save);

}  // namespace weft::internal::train
