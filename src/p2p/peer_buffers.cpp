#include "src/p2p/peer_buffers.hpp"

#include <fmt/core.h>

namespace weft::internal {

std::string overlapping_parts(int first, int second, uint64_t count, uint64_t behind, const char* counts_name) {
    return fmt::format(
        "recvbuff: the parts of ranks {} and {} overlap: {} elements there, and the other begins {} behind; "
        "displacements must leave each rank its {}",
        first, second, count, behind, counts_name);
}

std::string overlapping_buffers(int to, int from) {
    return fmt::format(
        "sendbuff and recvbuff overlap: what goes to rank {} and what comes from rank {}; they must be disjoint", to,
        from);
}

}  // namespace weft::internal
