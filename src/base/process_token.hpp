// process_token.hpp: a random number of this process. A child has a new one after fork. Thread-safe.
#pragma once
#include <cstdint>

namespace weft::internal {

uint64_t process_token();
// The number's address in this process. A peer reads it there to check that it reads the right process.
uint64_t process_token_address();

}  // namespace weft::internal
