// durable_file.hpp: a file that is on the disk once sync() has returned.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal::train {

// Failures name the file: weftSystemError. Thread-bound.
class DurableFile {
  public:
    // An empty file. An old one of this name is cut.
    static Result<DurableFile> create(std::string name);
    // For several ranks that write parts of one file.
    static Result<DurableFile> open(std::string name);
    Status write_at(uint64_t place, const void* data, size_t bytes);
    Status sync();
    Status resize(uint64_t bytes);

  private:
    static Result<DurableFile> open_with(std::string name, int flags);

    std::string name_;
    Fd file_;
};

// The names in a folder are on the disk afterwards.
Status sync_folder(const std::string& folder);
// Renames a file, also over an old one, and syncs the folder.
Status rename_durably(const std::string& from, const std::string& to);
// The folder of a file's name.
std::string folder_of(const std::string& file);

}  // namespace weft::internal::train
