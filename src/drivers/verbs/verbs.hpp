// verbs.hpp: libibverbs, opened at run time: the RDMA devices that this process may use, their ports, and whether they
// accept device memory as dma-buf. The results are plain values. Missing data is unknown, never an error of Weft.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::verbs {

struct Gid {
    std::array<uint8_t, 16> bytes{};
    bool roce_v2 = false;
};

struct RdmaPort {
    int number = 0;       // from 1
    std::string state;    // "ACTIVE", "DOWN"
    std::string refused;  // why the port does not answer; the following fields are unknown then
    bool active = false;
    int mbps = -1;           // width times speed; -1: unknown
    std::string link_layer;  // "InfiniBand", "Ethernet"; empty: unknown
    std::vector<Gid> gids;   // without the empty ones
};

struct RdmaDevice {
    std::string name;     // "mlx5_0"
    std::string refused;  // why the device cannot be opened or queried; the following fields are unknown then
    std::array<uint8_t, 8> guid{};
    std::optional<bool> dma_buf;  // whether the device can register a dma-buf
    std::vector<RdmaPort> ports;
};

// `library` as in WEFT_VERBS_LIBRARY. Opens and closes each device, which takes milliseconds. The library may write
// warnings to standard error. Reentrant. Fails if there is no library or the kernel has no RDMA.
Result<std::vector<RdmaDevice>> devices(const std::string& library);

}  // namespace weft::internal::verbs
