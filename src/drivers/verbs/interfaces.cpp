#include "src/drivers/verbs/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>

#include <bit>
#include <cstring>

namespace weft::internal::verbs {

namespace {

int mask_bits(const uint8_t* bytes, size_t count) {
    int bits = 0;
    for (size_t i = 0; i < count; ++i) bits += std::popcount(bytes[i]);
    return bits;
}

// The link-local GID that the kernel makes of a hardware address, whether or not the interface has that address.
std::array<uint8_t, 16> link_local_of(const unsigned char (&mac)[8]) {
    return {0xfe, 0x80, 0, 0, 0, 0, 0, 0, uint8_t(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
}

}  // namespace

Interfaces Interfaces::read() {
    Interfaces all;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return all;
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr) continue;
        Row row{
            .name = one->ifa_name, .index = if_nametoindex(one->ifa_name), .up = (one->ifa_flags & IFF_RUNNING) != 0};
        if (one->ifa_addr->sa_family == AF_INET && one->ifa_netmask != nullptr) {
            const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
            const auto* mask = reinterpret_cast<const sockaddr_in*>(one->ifa_netmask);
            row.address[10] = row.address[11] = 0xff;
            memcpy(row.address.data() + 12, &address->sin_addr, 4);
            row.prefix_bits = std::popcount(mask->sin_addr.s_addr);
        } else if (one->ifa_addr->sa_family == AF_INET6 && one->ifa_netmask != nullptr) {
            const auto* address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
            const auto* mask = reinterpret_cast<const sockaddr_in6*>(one->ifa_netmask);
            memcpy(row.address.data(), &address->sin6_addr, 16);
            row.prefix_bits = mask_bits(mask->sin6_addr.s6_addr, 16);
        } else if (one->ifa_addr->sa_family == AF_PACKET) {
            const auto* hardware = reinterpret_cast<const sockaddr_ll*>(one->ifa_addr);
            if (hardware->sll_halen != 6) continue;
            row.address = link_local_of(hardware->sll_addr);
            row.prefix_bits = 64;
        } else {
            continue;
        }
        all.rows_.push_back(std::move(row));
    }
    freeifaddrs(list);
    return all;
}

void Interfaces::describe(PortGid& gid, unsigned index) const {
    const Row* found = nullptr;
    for (const Row& row : rows_)
        if (row.address == gid.bytes && (found == nullptr || row.index == index)) found = &row;
    if (found == nullptr || gid.type == gid_infiniband) return;
    gid.interface = found->name;
    gid.interface_down = !found->up;
    gid.prefix_bits = found->prefix_bits;
}

}  // namespace weft::internal::verbs
