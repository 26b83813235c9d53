// tuning_file.hpp: WEFT_TUNE_FILE: which tuning this process brings with it.
#pragma once
#include <memory>
#include <string>

#include "src/selector/tuning.hpp"

namespace weft::internal {

// What a tuning of this machine, by this library, names as its own; the rest is empty.
Tuning tuning_of_here();

// The file's, read once as long as somebody holds it; null for "" and "none", and, with a warning once a process, for
// one that another machine or another version of Weft has measured: the built-in costs serve there.
// weftInvalidUsage, weftSystemError: it cannot be read, or is none; the sentence says what to do. Thread-safe.
Result<std::shared_ptr<const Tuning>> tuning_of_file(const std::string& name);

}  // namespace weft::internal
