// failure.hpp: the exception that ends the work of a benchmark's rank.
#pragma once
#include <stdexcept>

namespace perf {

// A call of Weft or of CUDA failed; holds the message.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace perf
