// descriptors.hpp: passes file descriptors over a connected Unix stream socket.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal::net {

constexpr size_t passed_descriptors_most = 2;

// One byte with these descriptors, which stay open here. False: the socket would block.
Result<bool> send_descriptors(int socket, std::span<const int> descriptors);
// The descriptors that the peer sent, perhaps none. Empty: they have not come yet.
Result<std::optional<std::vector<Fd>>> receive_descriptors(int socket);

}  // namespace weft::internal::net
