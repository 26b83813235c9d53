// process_token.hpp: a random number of this process. A child has a new one after fork. Thread-safe.
#pragma once
#include <cstdint>

namespace weft::internal {

uint64_t process_token();
// Where the number lies in this process's memory. A peer reads it there to check that it reads this process.
uint64_t process_token_address();

}  // namespace weft::internal
