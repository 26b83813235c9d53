// process.hpp: the process's GPUs and Weft's log. Without GPUs this library serves host memory where NCCL has device
// memory, and the log says so.
#pragma once
#include <weft/weft.h>

#include <string>

namespace weft::internal::nccl {

inline bool has_devices() {
    int count = 0;
    return weftGetDeviceCount(&count) == weftSuccess && count > 0;
}

inline void log_info(const std::string& line) {
    // It fails for a null text only.
    [[maybe_unused]] const weftResult_t logged = weftLogInfo(line.c_str());
}

}  // namespace weft::internal::nccl
