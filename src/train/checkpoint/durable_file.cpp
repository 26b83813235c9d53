#include "src/train/checkpoint/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace weft::internal::train {

namespace {

Status unwritable(const std::string& name, int error) {
    return fail(error::file_unwritable, "{} could not be written: {}", name, no_descriptor_text(error));
}

}  // namespace

Result<DurableFile> DurableFile::create(std::string name) { return open_with(std::move(name), O_CREAT | O_TRUNC); }
Result<DurableFile> DurableFile::open(std::string name) { return open_with(std::move(name), 0); }

Result<DurableFile> DurableFile::open_with(std::string name, int flags) {
    DurableFile file;
    file.file_ = Fd::open(name, O_WRONLY | flags, 0666);
    if (!file.file_) return unwritable(name, errno);
    file.name_ = std::move(name);
    return file;
}

Status DurableFile::write_at(uint64_t place, const void* data, size_t bytes) {
    constexpr size_t most = size_t(1) << 30;  // Linux writes at most 2 GiB in a call
    const auto* next = static_cast<const std::byte*>(data);
    while (bytes > 0) {
        const ssize_t count = pwrite(file_.number(), next, std::min(bytes, most), off_t(place));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return unwritable(name_, count == 0 ? ENOSPC : errno);
        next += count;
        place += uint64_t(count);
        bytes -= size_t(count);
    }
    return ok();
}

Status DurableFile::sync() { return fsync(file_.number()) == 0 ? ok() : unwritable(name_, errno); }

Status DurableFile::resize(uint64_t bytes) {
    return ftruncate(file_.number(), off_t(bytes)) == 0 ? ok() : unwritable(name_, errno);
}

Status sync_folder(const std::string& folder) {
    const Fd opened = Fd::open(folder, O_RDONLY | O_DIRECTORY);
    if (!opened) return unwritable(folder, errno);
    // Some file systems cannot sync folders.
    if (fsync(opened.number()) == 0 || errno == EINVAL) return ok();
    return unwritable(folder, errno);
}

Status rename_durably(const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0) return unwritable(to, errno);
    return sync_folder(folder_of(to));
}

std::string folder_of(const std::string& file) {
    const size_t end = file.rfind('/');
    if (end == std::string::npos) return ".";
    return end == 0 ? "/" : file.substr(0, end);
}

}  // namespace weft::internal::train
