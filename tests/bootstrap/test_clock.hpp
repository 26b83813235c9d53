// test_clock.hpp: a clock for the control plane that stands still unless a test moves it.
#pragma once
#include <atomic>
#include <cstdint>

namespace weft::internal::test {

inline std::atomic<int64_t> test_time_us{1};
inline int64_t test_clock() { return test_time_us; }

}  // namespace weft::internal::test
