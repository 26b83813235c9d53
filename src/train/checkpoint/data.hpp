// data.hpp: the data files of a checkpoint, written and read with checksums.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"
#include "src/train/checkpoint/metadata.hpp"
#include "src/train/checkpoint/plan.hpp"

namespace weft::internal::train {

// Writes a rank's data file of the save with the id `save` and syncs it. data[i] is the memory of boxes[i]. Sets their
// places and checksums, and returns the file's bytes. A file that could not be written is removed.
Result<uint64_t> write_data(const std::string& folder, const std::string& save, int rank, std::vector<StoredBox>& boxes,
                            const std::vector<const void*>& data);
// Removes a rank's data file if it is of that save.
void remove_data(const std::string& folder, const std::string& save, int rank);
// Opens a rank's data file, and checks its length and its save.
Result<Fd> open_data(const std::string& folder, const Metadata& metadata, int rank);

// Reads parts of stored boxes. Every block that is read is verified. Thread-bound.
class DataReader {
  public:
    // The metadata outlives it.
    DataReader(std::string folder, const Metadata& metadata) : folder_(std::move(folder)), metadata_(metadata) {}
    // Into the memory of the box `wanted`.
    Status read(const Read& read, const Box& wanted, void* memory);

  private:
    struct Block {
        const StoredBox* stored = nullptr;
        size_t index = 0;
        std::vector<std::byte> data;
    };
    Status read_bytes(const StoredBox& stored, size_t begin, size_t bytes, std::byte* to);
    // A whole block, verified.
    Status read_block(const StoredBox& stored, size_t index, std::byte* to);
    Result<const Fd*> open(int rank);

    std::string folder_;
    const Metadata& metadata_;
    std::map<int, Fd> files_;
    Block block_;  // the newest one of which only a part was needed
};

}  // namespace weft::internal::train
