// verdict.hpp: steps after which all ranks agree whether they succeeded, and texts between rank 0 and the others.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::train {

class Peers;

// A step of this rank, in which lack of memory is a failure for common_verdict() and no exception.
Status attempt(const std::function<Status()>& step);
// All ranks call it with their own result. If some rank has failed, all return a failure with the id of the lowest one,
// whose sentence names that rank. A rank that has failed returns its own failure.
Status common_verdict(const Peers& peers, Status own);
// All ranks call it. Rank 0 has the texts of all ranks; the others have none.
Result<std::vector<std::string>> gather_texts(const Peers& peers, const std::string& own);
// All ranks call it. The texts of all ranks.
Result<std::vector<std::string>> all_gather_texts(const Peers& peers, const std::string& own);
// All ranks call it. The text of rank 0.
Result<std::string> broadcast_text(const Peers& peers, std::string own);

}  // namespace weft::internal::train
