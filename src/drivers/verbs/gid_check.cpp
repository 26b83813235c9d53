#include "src/drivers/verbs/gid_check.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace weft::internal::verbs {

namespace {

void check_gid(const ProtectionDomain& domain, int port, PortGid& gid) {
    const abi::Functions& functions = domain.context().functions();
    if (functions.ibv_create_ah == nullptr || functions.ibv_destroy_ah == nullptr) return;
    if (gid.type == gid_infiniband) return;
    abi::Address address{};
    address.is_global = 1;
    address.port_num = uint8_t(port);
    address.grh.sgid_index = uint8_t(gid.index);
    address.grh.hop_limit = 1;  // nothing is sent
    std::copy(gid.bytes.begin(), gid.bytes.end(), std::begin(address.grh.dgid));
    errno = 0;
    if (abi::AddressHandle* made = functions.ibv_create_ah(domain.get(), &address))
        functions.ibv_destroy_ah(made);
    else if (errno == EINVAL || errno == ENETUNREACH || errno == EHOSTUNREACH || errno == ENODEV)
        gid.refused = errno;
}

}  // namespace

void check_gids(const ProtectionDomain& domain, int port, std::vector<PortGid>& gids) {
    for (PortGid& gid : gids) check_gid(domain, port, gid);
}

void check_invisible_gids(const ProtectionDomain& domain, int port, std::vector<PortGid>& gids) {
    for (PortGid& gid : gids)
        if (gid.interface.empty()) check_gid(domain, port, gid);
}

}  // namespace weft::internal::verbs
