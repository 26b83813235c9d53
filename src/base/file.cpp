#include "src/base/file.hpp"

#include <cerrno>
#include <fstream>

namespace weft {

Result<std::string> read_file(const std::string& name, size_t bytes_most) {
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
