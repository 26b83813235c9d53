// address.hpp: the address of a process (IPv4 or IPv6, and port), the resolver, and this host's own addresses as
// WEFT_SOCKET_IFNAME and WEFT_SOCKET_FAMILY select them.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::net {

// A value.
class Address {
  public:
    Address() = default;
    // Empty for families other than AF_INET and AF_INET6. IPv4 inside IPv6 (::ffff:10.0.0.1) becomes IPv4.
    static std::optional<Address> of(const sockaddr* address);
    // "10.0.0.1:29500", "[fd00::2]:29500", "[fe80::1%eth0]:29500". Without a port (and brackets) the port is 0.
    static Result<Address> parse(const std::string& text);
    static Address any(int family, uint16_t port);  // all interfaces

    std::string text() const;  // as parse() reads it
    int family() const { return storage_.plain.sa_family; }
    uint16_t port() const;
    Address with_port(uint16_t port) const;
    bool is_loopback() const;
    // An IPv6 address that is valid only together with an interface of the host that uses it.
    bool is_link_local() const;
    // IPv4's 169.254.0.0/16: the interface has no configured address, such as a BMC's, which is the same on every host.
    bool is_unconfigured() const;
    uint32_t scope() const { return family() == AF_INET6 ? storage_.six.sin6_scope_id : 0; }
    Address with_scope(uint32_t interface_index) const;

    // The index of its host's interface in local_addresses(). Interfaces with equal indexes on two hosts are used
    // together.
    int interface() const { return interface_; }
    Address of_interface(int interface) const;

    // 7 bytes (IPv4) or 19 (IPv6), without the scope. unpack() moves `at` past the address; empty: there is none.
    static constexpr size_t packed_bytes_max = 19;
    size_t packed_bytes() const { return family() == AF_INET ? 7 : 19; }
    void pack(std::vector<std::byte>& to) const;
    static std::optional<Address> unpack(const std::byte*& at, const std::byte* end);

    const sockaddr* raw() const { return &storage_.plain; }
    socklen_t raw_bytes() const { return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }
    bool operator==(const Address& other) const;  // ignores the interface's index

  private:
    union Storage {
        sockaddr plain;
        sockaddr_in four;
        sockaddr_in6 six;
    };
    Storage storage_ = {.four = {AF_INET, 0, {}, {}}};
    uint8_t interface_ = 0;
};

// A zero, a count, and as many packed addresses as fit.
using PackedAddresses = std::array<char, 61>;
PackedAddresses pack_addresses(const std::vector<Address>& addresses);

// A port, or first-last, as in WEFT_PORT_RANGE. option.value says what is expected.
Result<std::pair<uint16_t, uint16_t>> parse_port_range(const std::string& text);
// Its ports in order, but `last` at the end. Of no text: port 0, which is any.
Result<std::vector<uint16_t>> ports_of_range(const std::string& text, int last);

// The addresses of a name, or of an address as text. May block in the resolver. tcp.unknown-host: the name has no
// address, perhaps not yet (pods, new hosts). tcp.resolver: the resolver failed.
// `family`: AF_INET, AF_INET6, or AF_UNSPEC; none: the value of WEFT_SOCKET_FAMILY.
Result<std::vector<Address>> resolve(const std::string& host, uint16_t port, std::optional<int> family = {});

// This host's addresses, best first, port 0: the first of each interface, then the second ones, then link-local ones.
// They belong to all interfaces that are up, or to those that WEFT_SOCKET_IFNAME selects. Interfaces of containers and
// virtual machines (docker0, virbr0) count only if there is no other, and loopback only if there is nothing else.
// tcp.interface lists the interfaces that exist.
Result<std::vector<Address>> local_addresses();
// The interface of an address of this host, as in eth0; empty: none has it.
std::string interface_name(const Address& address);

// The selection rule of local_addresses(), independent of the machine.
struct InterfaceAddress {
    std::string interface;
    Address address;
};
Result<std::vector<Address>> choose_addresses(const std::vector<InterfaceAddress>& all, const std::string& names,
                                              const std::string& family);
// Every address of an interface that is up; empty if they cannot be listed.
std::vector<InterfaceAddress> addresses_of_this_host();
// The order in which a peer's addresses are tried: link-local ones late, and last those that this host has too, where
// it may reach itself. Otherwise the peer's own order.
std::vector<Address> call_order(std::vector<Address> peer, const std::vector<InterfaceAddress>& own);

// The speed of these interfaces together as the kernel reports it, in Mbit/s. It is 0 if the speed of one of them is
// unknown, or if the interface is virtual. `folder`: the kernel's files.
int64_t link_mbps(const std::vector<std::string>& interfaces, const std::string& folder = "/sys/class/net");
// Of the interfaces that this host's connections use.
int64_t link_mbps();

}  // namespace weft::internal::net
