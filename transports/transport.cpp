#include "transports/transport.hpp"

namespace weft::internal {

static Status declined(const char* what) {
    return fail(error::internal_state, "a caller asked a transport without that capability to {}", what);
}

Result<std::unique_ptr<RemoteMemory>> Sender::attach(std::span<const std::byte>) {
    return declined("attach a peer's memory");
}
Result<bool> Sender::put(const std::byte*, const RegisteredMemory*, RemoteMemory&, size_t, size_t) {
    return declined("put");
}
Result<bool> Sender::get(std::byte*, const RegisteredMemory*, RemoteMemory&, size_t, size_t) { return declined("get"); }

Result<std::unique_ptr<RegisteredMemory>> Transport::register_memory(const MemoryRange& range) const {
    if (can(Capability::registers)) return declined("register memory");
    if (range.kind == RangeKind::device && !can(Capability::device)) return declined("register device memory");
    return std::make_unique<RegisteredMemory>(range);  // any memory serves
}

}  // namespace weft::internal
