#include "src/comm/call.hpp"

namespace weft::internal {

Call gather_entries(Purpose purpose, int rank, void* all, size_t bytes) {
    CollectiveCall call;
    call.operation.collective = Collective::all_gather;
    call.operation.purpose = purpose;
    call.operation.type = weftUint64;
    call.operation.count = bytes / sizeof(uint64_t);
    call.send = static_cast<std::byte*>(all) + size_t(rank) * bytes;
    call.receive = all;
    return {.kind = call};
}

}  // namespace weft::internal
