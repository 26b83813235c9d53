#include "src/base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "src/base/fd.hpp"

namespace weft::internal {

Result<std::string> read_file(const std::string& name, size_t bytes_most, Pipes pipes) {
    struct stat info;
    if (pipes == Pipes::refused && stat(name.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)))
        return fail(error::file_unsuitable, "{} is a {}; name a regular file", name,
                    S_ISFIFO(info.st_mode) ? "pipe" : "socket");
    const Fd file = Fd::open(name, O_RDONLY);
    if (!file) return fail(error::file_unreadable, "{} could not be read: {}", name, no_descriptor_text(errno));
    std::string text;
    for (char buffer[65536];;) {
        const ssize_t count = read(file.number(), buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail(error::file_unreadable, "{} could not be read: {}", name, errno_text(errno));
        if (count == 0) return text;
        text.append(buffer, size_t(count));
        if (text.size() > bytes_most)
            return fail(error::file_unsuitable, "{} is larger than {} MiB", name, bytes_most >> 20);
    }
}

std::string system_file(const std::string& name) {
    constexpr size_t bytes_most = size_t(64) << 20;  // /proc/PID/maps of a process with a million mappings
    auto text = read_file(name, bytes_most, Pipes::read);
    return text ? std::move(*text) : std::string();
}

Status write_file(const std::string& name, const std::string& text) {
    FileWriter file(name);
    file.add(text);
    return file.finish();
}

FileWriter::FileWriter(const std::string& name) : name_(name) {
    static std::atomic<int> drafts{0};
    struct stat old;
    const bool exists = lstat(name.c_str(), &old) == 0;
    // A draft would lose such a file's owner or its other names, or its folder may not be writable.
    const bool in_place = exists && (!S_ISREG(old.st_mode) || old.st_uid != geteuid() || old.st_nlink > 1 ||
                                     access(name.c_str(), W_OK) != 0);
    Fd made;
    if (!in_place) {
        draft_ = fmt::format("{}.{}.{}", name, getpid(), ++drafts);
        made = Fd::open(draft_, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (made && exists) (void)!fchmod(made.number(), old.st_mode & 07777);
        if (!made) draft_.clear();  // the folder is not writable, but the file may be
    }
    if (!made) made = Fd::open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (made) file_ = fdopen(made.number(), "wb");
    if (file_)
        (void)made.release();
    else
        error_ = errno;
}

FileWriter::~FileWriter() {
    if (file_) std::fclose(file_);
    if (!draft_.empty()) unlink(draft_.c_str());
}

void FileWriter::add(std::string_view text) {
    if (error_ == 0 && std::fwrite(text.data(), 1, text.size(), file_) != text.size()) error_ = errno;
}

Status FileWriter::status() const {
    if (error_ == 0) return ok();
    return fail(error::file_unwritable, "{} could not be written: {}", name_, no_descriptor_text(error_));
}

Status FileWriter::finish() {
    // Some file systems report only here that they are full.
    if (file_ && std::fclose(std::exchange(file_, nullptr)) != 0 && error_ == 0) error_ = errno;
    if (error_ == 0 && !draft_.empty() && std::rename(draft_.c_str(), name_.c_str()) != 0) error_ = errno;
    if (error_ == 0) draft_.clear();
    return status();
}

}  // namespace weft::internal
