// open_descriptors.hpp: how many files this process has open; for tests of what is left behind.
#pragma once
#include <cstddef>
#include <filesystem>
#include <iterator>

namespace weft::internal::test {

inline size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return size_t(std::distance(begin(all), end(all)));
}

}  // namespace weft::internal::test
