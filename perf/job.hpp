// job.hpp: makes the ranks of this process, which are one process of a launcher or several threads.
#pragma once
#include <functional>
#include <string>

#include "arguments.hpp"
#include "rank.hpp"

namespace perf {

// Runs `body`, which returns an exit status, on every rank of this process, and returns the largest status.
// If a body throws Failure, its rank prints the message, aborts its communicator and has status 1.
// The abort ends the other ranks as well.
int run_ranks(const std::string& program, const Arguments& arguments, const std::function<int(Rank&)>& body);

}  // namespace perf
