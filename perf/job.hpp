// job.hpp: makes this process's ranks, one that a launcher placed or several threads, and runs the same body on each.
#pragma once
#include <functional>
#include <string>

#include "arguments.hpp"
#include "rank.hpp"

namespace perf {

// Runs `body` on every rank of this process, which returns the rank's exit status. Returns the largest. A rank whose
// body throws Failure says so on standard error and aborts the communicator, so that the others end as well; its status
// is 1.
int run_ranks(const std::string& program, const Arguments& arguments, const std::function<int(Rank&)>& body);

}  // namespace perf
