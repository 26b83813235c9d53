// tuning_text.hpp: a tuning as JSON, which `weft tune` writes and WEFT_TUNE_FILE names. Reentrant.
#pragma once
#include <string>
#include <string_view>

#include "src/base/result.hpp"
#include "src/selector/tuning.hpp"

namespace weft::internal {

// weftInvalidUsage: the text is cut off, has another form or a value out of range. The sentence says where.
Result<Tuning> read_tuning(std::string_view text);
std::string tuning_text(const Tuning& tuning);

}  // namespace weft::internal
