#include "topology/detect/system_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal::topology {

namespace {

constexpr size_t bytes_most = 65'536;  // of a file: enough for cpuinfo of one processor and long lists
constexpr size_t refusals_most = 4;

// Errors by which the kernel reports that a file has no value, as the speed of a network that is down.
bool is_silent(int error) {
    return error == ENOENT || error == ENOTDIR || error == EINVAL || error == ENODEV || error == ENXIO ||
           error == EOPNOTSUPP || error == ENODATA;
}

}  // namespace

std::string printable(std::string text) {
    for (char& letter : text)
        if ((letter < ' ' || letter > '~') && letter != '\t' && letter != '\n') letter = '?';
    return text;
}

void SystemFiles::remember(const std::string& name, int error) {
    if (is_silent(error)) return;
    if (refused_.size() < refusals_most)
        refused_.push_back(
            fmt::format("{}/{} cannot be read: {}; its facts are unknown", root_, name, errno_text(error)));
    else
        ++more_;
}

std::optional<std::string> SystemFiles::text(const std::string& name) {
    const Fd file = Fd::open(root_ + '/' + name, O_RDONLY);
    if (file.number() < 0) return remember(name, errno), std::nullopt;
    std::string text;
    char buffer[4096];
    for (;;) {
        const ssize_t count = ::read(file.number(), buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return remember(name, errno), std::nullopt;
        if (count == 0 || text.size() >= bytes_most) break;
        text.append(buffer, size_t(count));
    }
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    return printable(std::move(text));
}

std::optional<long long> SystemFiles::number(const std::string& name) {
    const auto found = text(name);
    if (!found) return {};
    const bool hexadecimal = found->compare(0, 2, "0x") == 0;
    long long value = 0;
    const char* end = found->data() + found->size();
    const auto parsed = std::from_chars(found->data() + (hexadecimal ? 2 : 0), end, value, hexadecimal ? 16 : 10);
    return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(value) : std::nullopt;
}

std::vector<std::string> SystemFiles::names(const std::string& folder) {
    std::vector<std::string> names;
    Fd opened = Fd::open(root_ + '/' + folder, O_RDONLY | O_DIRECTORY);
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(opened ? fdopendir(opened.number()) : nullptr, closedir);
    if (!stream) return remember(folder, errno), names;
    opened.release();
    while (const dirent* entry = readdir(stream.get()))
        if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    std::sort(names.begin(), names.end());
    return names;
}

bool SystemFiles::exists(const std::string& name) const { return access((root_ + '/' + name).c_str(), F_OK) == 0; }

uint64_t SystemFiles::identity(const std::string& name) const {
    struct stat about {};
    if (stat((root_ + '/' + name).c_str(), &about) != 0) return 0;
    return uint64_t(about.st_ino) ^ uint64_t(about.st_dev) * 0x9e3779b97f4a7c15u;
}

std::string SystemFiles::target(const std::string& link) {
    const std::unique_ptr<char, decltype(&std::free)> path(realpath((root_ + '/' + link).c_str(), nullptr), &std::free);
    if (!path) return remember(link, errno), std::string();
    return path.get();
}

std::vector<std::string> SystemFiles::notes() const {
    std::vector<std::string> notes = refused_;
    if (more_ > 0) notes.push_back(fmt::format("so cannot {} more files of {}", more_, root_));
    return notes;
}

}  // namespace weft::internal::topology
