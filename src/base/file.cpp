#include "src/base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>

namespace weft {

Result<std::string> read_file(const std::string& name, size_t bytes_most, Pipes pipes) {
    struct stat info;
    if (pipes == Pipes::refused && stat(name.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)))
        return fail(weftInvalidUsage, "{} is a {}, for whose end nobody may wait here: name a file", name,
                    S_ISFIFO(info.st_mode) ? "pipe" : "socket");
    errno = 0;
    std::ifstream file(name, std::ios::binary);
    std::string text;
    for (char buffer[65536]; file.read(buffer, sizeof buffer) || file.gcount() > 0;) {
        text.append(buffer, size_t(file.gcount()));
        if (text.size() > bytes_most) return fail(weftInvalidUsage, "{} is larger than {} MiB", name, bytes_most >> 20);
    }
    if (!file.eof()) return fail(weftSystemError, "{} could not be read: {}", name, errno_text(errno));
    return text;
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
    // A draft would not have the owner or the other names of such a file, or could be written where the file may not.
    const bool in_place = exists && (!S_ISREG(old.st_mode) || old.st_uid != geteuid() || old.st_nlink > 1 ||
                                     access(name.c_str(), W_OK) != 0);
    if (!in_place) {
        draft_ = fmt::format("{}.{}.{}", name, getpid(), ++drafts);
        const int draft = open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (draft >= 0 && exists) (void)!fchmod(draft, old.st_mode & 07777);
        if (draft >= 0) file_ = fdopen(draft, "wb");
        if (!file_) draft_.clear();  // the folder may not be written, but the file may
    }
    if (!file_) file_ = std::fopen(name.c_str(), "wbe");
    if (!file_) error_ = errno;
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
    return fail(weftSystemError, "{} could not be written: {}", name_, errno_text(error_));
}

Status FileWriter::finish() {
    // Some file systems tell only here that they are full.
    if (file_ && std::fclose(std::exchange(file_, nullptr)) != 0 && error_ == 0) error_ = errno;
    if (error_ == 0 && !draft_.empty() && std::rename(draft_.c_str(), name_.c_str()) != 0) error_ = errno;
    if (error_ == 0) draft_.clear();
    return status();
}

}  // namespace weft
