#include "src/net/resolution.hpp"

#include <netdb.h>
#include <unistd.h>

#include <climits>

#include "src/base/fd.hpp"

namespace weft::internal::net {

Resolution look_up(const std::string& host, uint16_t port, std::optional<int> family) {
    if (const auto numeric = Address::parse(host); numeric && numeric->port() == 0)
        return Resolution(resolve(host, port, family));
    return Resolution(fmt::format("the name {} could not be resolved", host),
                      [host, port, family] { return resolve(host, port, family); });
}

Question<std::string> look_up_own_name() {
    char buffer[HOST_NAME_MAX + 1] = {};
    gethostname(buffer, sizeof buffer - 1);
    return Question<std::string>("this host's full name", [name = std::string(buffer)]() -> Result<std::string> {
        addrinfo hints{}, *found = nullptr;
        hints.ai_flags = AI_CANONNAME;
        const StandardNumbers held;
        if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return name;
        const std::string full = found->ai_canonname ? found->ai_canonname : name;
        freeaddrinfo(found);
        return full.rfind(name, 0) == 0 ? full : name;
    });
}

}  // namespace weft::internal::net
