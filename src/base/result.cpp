#include "src/base/result.hpp"

#include <cstring>

namespace weft::internal {

std::string Failure::text() const {
    return id == ErrorId::none ? sentence : fmt::format("{} [{}]", sentence, row_of(id).id);
}

std::string errno_text(int error) {
    char buffer[128];
    return fmt::format("{} (errno {})", strerror_r(error, buffer, sizeof buffer), error);
}

}  // namespace weft::internal
