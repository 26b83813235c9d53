// routes.hpp: the routes of this network namespace, to find GIDs of RoCE between which packets can travel.
#pragma once
#include <span>
#include <vector>

#include "src/base/result.hpp"
#include "src/drivers/verbs/gid.hpp"

namespace weft::internal::verbs {

// All unicast routes of IPv4 and IPv6, from the kernel by netlink. verbs.call: the kernel does not answer; routes are
// then unknown. Takes a millisecond. Reentrant.
Result<std::vector<Route>> read_routes();

// The routes in the kernel's answer, for read_routes() and tests. True: it was the last part.
bool add_routes(std::span<const std::byte> answer, std::vector<Route>& routes);

}  // namespace weft::internal::verbs
