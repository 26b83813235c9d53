#include "src/net/address.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <charconv>

#include "src/base/fd.hpp"
#include "src/base/options.hpp"

namespace weft::internal::net {

std::optional<Address> Address::of(const sockaddr* address) {
    Address result;
    if (address == nullptr) return {};
    if (address->sa_family == AF_INET) {
        memcpy(&result.storage_.four, address, sizeof result.storage_.four);
        return result;
    }
    if (address->sa_family != AF_INET6) return {};
    sockaddr_in6 six;
    memcpy(&six, address, sizeof six);
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
        result.storage_.four.sin_port = six.sin6_port;
        memcpy(&result.storage_.four.sin_addr, six.sin6_addr.s6_addr + 12, 4);
        return result;
    }
    six.sin6_flowinfo = 0;
    result.storage_.six = six;
    return result;
}

Address Address::any(int family, uint16_t port) {
    Address result;
    if (family == AF_INET6) result.storage_.six = {AF_INET6, 0, 0, in6addr_any, 0};
    return result.with_port(port);
}

static Result<uint16_t> parse_port(const std::string& text) {
    uint16_t port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc() || end != text.data() + text.size() || port == 0)
        return fail(error::tcp_address, "{} is no port: a number from 1 to 65535 is expected", text);
    return port;
}

Result<Address> Address::parse(const std::string& text) {
    const bool bracketed = !text.empty() && text[0] == '[';
    const size_t colon = bracketed ? text.find("]:") : text.find(':');
    const bool bare_six = !bracketed && colon != std::string::npos && text.find(':', colon + 1) != std::string::npos;
    std::string host = bare_six ? text : text.substr(0, colon);
    if (bracketed) host = colon == std::string::npos ? text.substr(1, text.find(']') - 1) : text.substr(1, colon - 1);
    uint16_t port = 0;
    if (colon != std::string::npos && !bare_six) {
        auto parsed = parse_port(text.substr(colon + (bracketed ? 2 : 1)));
        if (!parsed) return fail(parsed.status(), "{}: {}", text, parsed.status().sentence());
        port = *parsed;
    }
    Address result;
    if (!bracketed && inet_pton(AF_INET, host.c_str(), &result.storage_.four.sin_addr) == 1)
        return result.with_port(port);
    const size_t percent = host.find('%');
    sockaddr_in6 six{AF_INET6, 0, 0, {}, 0};
    const bool closed = !bracketed || colon != std::string::npos || text.find(']') == text.size() - 1;
    if (!closed || inet_pton(AF_INET6, host.substr(0, percent).c_str(), &six.sin6_addr) != 1)
        return fail(error::tcp_address, "{} is no address: 10.0.0.1:29500 or [fd00::1]:29500 is expected", text);
    if (percent != std::string::npos) {
        six.sin6_scope_id = if_nametoindex(host.c_str() + percent + 1);
        if (six.sin6_scope_id == 0)
            return fail(error::tcp_address, "{}: there is no network interface {}", text, host.substr(percent + 1));
    }
    result.storage_.six = six;
    return result.with_port(port);
}

std::string Address::text() const {
    char host[INET6_ADDRSTRLEN] = "";
    if (family() == AF_INET) {
        inet_ntop(AF_INET, &storage_.four.sin_addr, host, sizeof host);
        return port() == 0 ? host : fmt::format("{}:{}", host, port());
    }
    inet_ntop(AF_INET6, &storage_.six.sin6_addr, host, sizeof host);
    std::string scoped = host;
    char interface[IF_NAMESIZE];
    if (scope() != 0) scoped += fmt::format("%{}", if_indextoname(scope(), interface) ? interface : "?");
    return port() == 0 ? scoped : fmt::format("[{}]:{}", scoped, port());
}

uint16_t Address::port() const { return ntohs(family() == AF_INET ? storage_.four.sin_port : storage_.six.sin6_port); }

Address Address::with_port(uint16_t port) const {
    Address result = *this;
    (family() == AF_INET ? result.storage_.four.sin_port : result.storage_.six.sin6_port) = htons(port);
    return result;
}

Address Address::with_scope(uint32_t interface_index) const {
    Address result = *this;
    if (family() == AF_INET6) result.storage_.six.sin6_scope_id = interface_index;
    return result;
}

Address Address::of_interface(int interface) const {
    Address result = *this;
    result.interface_ = uint8_t(interface);
    return result;
}

bool Address::is_loopback() const {
    if (family() == AF_INET) return ntohl(storage_.four.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&storage_.six.sin6_addr);
}

bool Address::is_link_local() const { return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&storage_.six.sin6_addr); }

bool Address::is_unconfigured() const {
    return family() == AF_INET && ntohl(storage_.four.sin_addr.s_addr) >> 16 == (169u << 8 | 254u);
}

bool Address::operator==(const Address& other) const {
    if (family() != other.family() || port() != other.port() || scope() != other.scope()) return false;
    if (family() == AF_INET) return storage_.four.sin_addr.s_addr == other.storage_.four.sin_addr.s_addr;
    return memcmp(&storage_.six.sin6_addr, &other.storage_.six.sin6_addr, sizeof(in6_addr)) == 0;
}

// One byte: 4 or 6, and the interface's number above; two of the port; the address.
void Address::pack(std::vector<std::byte>& to) const {
    const bool four = family() == AF_INET;
    to.push_back(std::byte((four ? 4 : 6) | (interface_ & 15) << 4));
    to.push_back(std::byte(port() >> 8));
    to.push_back(std::byte(port() & 255));
    const auto* bytes = reinterpret_cast<const std::byte*>(four ? static_cast<const void*>(&storage_.four.sin_addr)
                                                                : static_cast<const void*>(&storage_.six.sin6_addr));
    to.insert(to.end(), bytes, bytes + (four ? 4 : 16));
}

std::optional<Address> Address::unpack(const std::byte*& at, const std::byte* end) {
    if (at == end) return {};
    const int version = int(*at) & 15;
    const size_t bytes = version == 4 ? 7 : 19;
    if ((version != 4 && version != 6) || size_t(end - at) < bytes) return {};
    Address result = any(version == 4 ? AF_INET : AF_INET6, uint16_t(int(at[1]) << 8 | int(at[2])));
    memcpy(version == 4 ? static_cast<void*>(&result.storage_.four.sin_addr)
                        : static_cast<void*>(&result.storage_.six.sin6_addr),
           at + 3, bytes - 3);
    result.interface_ = uint8_t(int(*at) >> 4);
    at += bytes;
    return result;
}

Result<std::pair<uint16_t, uint16_t>> parse_port_range(const std::string& text) {
    const size_t dash = text.find('-');
    const auto first = parse_integer(text.substr(0, dash));
    const auto last = parse_integer(text.substr(dash == std::string::npos ? 0 : dash + 1));
    if (!first || !last || *first < 1 || *last > 65535 || *first > *last)
        return fail(error::option_value, "WEFT_PORT_RANGE is {}; first-last is expected, such as 40000-40999", text);
    return std::pair(uint16_t(*first), uint16_t(*last));
}

Result<std::vector<uint16_t>> ports_of_range(const std::string& text, int last) {
    if (text.empty()) return std::vector<uint16_t>{0};
    const auto range = parse_port_range(text);
    if (!range) return range.status().copy();
    std::vector<uint16_t> ports;
    for (int port = range->first; port <= range->second; ++port)
        if (port != last) ports.push_back(uint16_t(port));
    if (last >= range->first && last <= range->second) ports.push_back(uint16_t(last));
    return ports;
}

static Result<int> wanted_family(const std::string& family) {
    if (family.empty()) return int(AF_UNSPEC);
    if (family == "AF_INET") return int(AF_INET);
    if (family == "AF_INET6") return int(AF_INET6);
    return fail(error::option_value, "{} is {}; AF_INET or AF_INET6 is expected",
                options().variable(OptionIndex::socket_family), family);
}

PackedAddresses pack_addresses(const std::vector<Address>& addresses) {
    PackedAddresses all{};
    std::vector<std::byte> packed;
    for (const Address& address : addresses) {
        if (packed.size() + address.packed_bytes() > all.size() - 2) break;
        address.pack(packed);
        ++all[1];
    }
    for (size_t i = 0; i < packed.size(); ++i) all[i + 2] = char(packed[i]);
    return all;
}

Result<std::vector<Address>> resolve(const std::string& host, uint16_t port, std::optional<int> family) {
    if (!family) {
        auto wanted = wanted_family(options().socket_family);
        if (!wanted) return wanted.take_status();
        family = *wanted;
    }
    if (auto numeric = Address::parse(host); numeric && numeric->port() == 0)
        return std::vector{numeric->with_port(port)};
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = *family;
    hints.ai_socktype = SOCK_STREAM;
    const StandardNumbers held;
    const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (error != 0)
        return fail(error == EAI_AGAIN || error == EAI_NONAME ? error::tcp_unknown_host : error::tcp_resolver,
                    "the name {} could not be resolved: {}", host,
                    error == EAI_SYSTEM ? errno_text(errno) : gai_strerror(error));
    std::vector<Address> addresses;
    for (const addrinfo* item = found; item; item = item->ai_next)
        if (auto address = Address::of(item->ai_addr)) addresses.push_back(address->with_port(port));
    freeaddrinfo(found);
    if (addresses.empty()) return fail(error::tcp_resolver, "the name {} has no IPv4 or IPv6 address", host);
    return addresses;
}

}  // namespace weft::internal::net
