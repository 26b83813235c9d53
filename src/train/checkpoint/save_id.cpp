#include "src/train/checkpoint/save_id.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <random>

namespace weft::internal::train {

std::string new_save_id() {
    std::random_device random;  // the system's: hosts draw different numbers
    return fmt::format("{:08x}{:08x}", uint32_t(random()), uint32_t(random()));
}

std::string draft_of(const std::string& file, const std::string& id) { return fmt::format("{}.{}.partial", file, id); }

}  // namespace weft::internal::train
