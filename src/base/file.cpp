#include "src/base/file.hpp"

#include <sys/stat.h>

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
    errno = 0;
    std::ofstream file(name, std::ios::binary);
    file << text;
    file.close();
    if (!file) return fail(weftSystemError, "{} could not be written: {}", name, errno_text(errno));
    return ok();
}

}  // namespace weft
