// both_memories.hpp: for tests that do the same work in host memory and on the fake driver's devices.
#pragma once
#include <weft/weft.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "src/train/memory_space.hpp"
#include "tests/comm/on_threads.hpp"

namespace weft::internal::test {

inline constexpr int fake_devices = 3;

inline void need(weftResult_t result) {
    if (result != weftSuccess) throw std::runtime_error(weftGetLastError(nullptr));
}
inline void need(Status status) {
    if (!status) throw std::runtime_error(status.text());
}
template <class Value>
Value need(Result<Value> result) {
    if (!result) throw std::runtime_error(result.status().text());
    return std::move(*result);
}

inline std::unique_ptr<train::MemorySpace> space_of_rank(int rank, bool on_device) {
    return on_device ? need(train::device_space(rank % fake_devices)) : train::host_space();
}

}  // namespace weft::internal::test
