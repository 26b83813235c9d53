// gid_check.hpp: asks the kernel whether it can send with the GIDs of a port.
#pragma once
#include <vector>

#include "src/drivers/verbs/memory.hpp"

namespace weft::internal::verbs {

// Makes an address with each GID of RoCE, to the GID itself. If the kernel refuses it, PortGid::refused is set: the
// network device of the GID is gone, or in a namespace that RDMA does not share with this one. Any other failure says
// nothing about the GID. May take a second for each while the kernel resolves addresses.
void check_gids(const ProtectionDomain& domain, int port, std::vector<PortGid>& gids);
// The same for GIDs without a visible network device only: for each link, because the table may have hundreds of others.
void check_invisible_gids(const ProtectionDomain& domain, int port, std::vector<PortGid>& gids);

}  // namespace weft::internal::verbs
