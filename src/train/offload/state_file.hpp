// state_file.hpp: a file without a name, in a folder of the caller. It ends with its owner, also if the process dies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal::train {

// Offsets, lengths and addresses of transfers are multiples of it, as O_DIRECT asks for.
inline constexpr size_t transfer_alignment = 4096;

// Zeros at first, with their space on the disk. Failures name the folder. Thread-bound.
class StateFile {
  public:
    static Result<StateFile> create(const std::string& folder, uint64_t bytes);

    int number() const { return file_.number(); }
    // Whether transfers bypass the page cache.
    bool direct() const { return direct_; }
    const std::string& folder() const { return folder_; }
    // `moved` of a transfer: negative errno, or bytes that are too few.
    Status failure(bool writes, int64_t moved) const;

  private:
    Status open();
    Status reserve(uint64_t bytes) const;
    Status write_zeros(uint64_t bytes) const;
    void bypass_cache(uint64_t bytes);

    std::string folder_;
    Fd file_;
    bool direct_ = false;
};

}  // namespace weft::internal::train
