// folder_lock.hpp: the right of one save to write to a folder. A save of another job, or of this one, is refused.
#pragma once
#include <string>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal::train {

// A locked file in the folder, with the host, the process and its boot and PID namespace. The kernel frees the lock when the process
// ends. File systems without locks are not protected. Move-only.
class FolderLock {
  public:
    FolderLock() = default;
    // Fails if another save holds the folder. Does not wait.
    static Result<FolderLock> take(const std::string& folder);
    FolderLock(FolderLock&& other) noexcept = default;
    FolderLock& operator=(FolderLock&& other) noexcept {
        release();
        file_ = std::move(other.file_);
        name_ = std::move(other.name_);
        return *this;
    }
    ~FolderLock() { release(); }

  private:
    void release() noexcept;

    Fd file_;  // none: not locked
    std::string name_;
};

}  // namespace weft::internal::train
