// address.hpp: where a process can be reached: IPv4 or IPv6 address and port; names resolved; this host's own addresses
// as WEFT_SOCKET_IFNAME and WEFT_SOCKET_FAMILY choose them.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::net {

// A value.
class Address {
  public:
    Address() = default;
    // As the kernel gives it; no family but AF_INET and AF_INET6 is known. IPv4 inside IPv6 (::ffff:10.0.0.1) is IPv4.
    static std::optional<Address> of(const sockaddr* address);
    // "10.0.0.1:29500", "[fd00::2]:29500", "[fe80::1%eth0]:29500"; without a port, and then without brackets, it is 0.
    static Result<Address> parse(const std::string& text);
    static Address any(int family, uint16_t port);  // all interfaces

    std::string text() const;  // as parse() reads it
    int family() const { return storage_.plain.sa_family; }
    uint16_t port() const;
    Address with_port(uint16_t port) const;
    bool is_loopback() const;
    // An IPv6 address that means something only together with an interface of the host that uses it.
    bool is_link_local() const;
    // IPv4's 169.254.0.0/16, of an interface that nobody gave an address: a BMC's, say, the same on every host.
    bool is_unconfigured() const;
    uint32_t scope() const { return family() == AF_INET6 ? storage_.six.sin6_scope_id : 0; }
    Address with_scope(uint32_t interface_index) const;

    // Which of its host's interfaces, counted as local_addresses() does: equal numbers of two hosts are used together.
    int interface() const { return interface_; }
    Address of_interface(int interface) const;

    // 7 bytes (IPv4) or 19 (IPv6), without the scope. unpack moves `at` behind what it read; nothing: no address there.
    static constexpr size_t packed_bytes_max = 19;
    size_t packed_bytes() const { return family() == AF_INET ? 7 : 19; }
    void pack(std::vector<std::byte>& to) const;
    static std::optional<Address> unpack(const std::byte*& at, const std::byte* end);

    const sockaddr* raw() const { return &storage_.plain; }
    socklen_t raw_bytes() const { return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }
    bool operator==(const Address& other) const;  // the interface's number apart

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

// The addresses of a name, or of an address as text. May block in the resolver. The sentence says what failed:
// weftRemoteError: the name has no address, which may be early (pods, new hosts); weftSystemError: the resolver.
// `family`: AF_INET, AF_INET6, or AF_UNSPEC; none: what WEFT_SOCKET_FAMILY says.
Result<std::vector<Address>> resolve(const std::string& host, uint16_t port, std::optional<int> family = {});

// This host's addresses, best first, port 0: the first of each interface, then the second ones, then link-local ones.
// They are of all interfaces that are up, or of those that WEFT_SOCKET_IFNAME chooses. Interfaces of containers and
// virtual machines (docker0, virbr0) count only if there is no other, and loopback only if there is nothing else.
// weftInvalidArgument lists what exists.
Result<std::vector<Address>> local_addresses();

// The rule behind it, apart from the machine it runs on.
struct InterfaceAddress {
    std::string interface;
    Address address;
};
Result<std::vector<Address>> choose_addresses(const std::vector<InterfaceAddress>& all, const std::string& names,
                                              const std::string& family);
// Every address of an interface that is up; none where they cannot be listed.
std::vector<InterfaceAddress> addresses_of_this_host();
// The order in which a peer's addresses are called: link-local ones late, and last those that this host has too, where
// it may reach itself. The peer's own order otherwise.
std::vector<Address> call_order(std::vector<Address> peer, const std::vector<InterfaceAddress>& own);

// How fast the kernel says that these interfaces are together, in Mbit/s; 0 if it does not know of one of them, or that
// is a virtual one, which may say anything. `folder` is where the kernel says it.
int64_t link_mbps(const std::vector<std::string>& interfaces, const std::string& folder = "/sys/class/net");
// Of those that connections from this host run over.
int64_t link_mbps();

}  // namespace weft::internal::net
