// tuning_file.hpp: WEFT_TUNE_FILE: the tuning of this process.
#pragma once
#include <memory>
#include <string>

#include "src/base/result.hpp"
#include "src/selector/tuning.hpp"

namespace weft::internal {

// An empty tuning with the facts of this machine and this library.
Tuning tuning_of_here();

// The tuning in the file, shared by its holders. Null for "" and "none", and for a file of another machine or another
// version of Weft. In that case the built-in costs are used, with one warning per process.
// weftInvalidUsage, weftSystemError: the file cannot be read, or is no tuning. Thread-safe.
Result<std::shared_ptr<const Tuning>> tuning_of_file(const std::string& name);

}  // namespace weft::internal
