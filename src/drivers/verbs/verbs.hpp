// verbs.hpp: libibverbs, opened at run time: the RDMA devices that this process may use, their ports, and whether they
// take device memory by dma-buf, as plain values. What cannot be had is unknown, never an error of Weft.
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
    std::string refused;  // a sentence: why it does not answer; then what follows is unknown
    bool active = false;
    int mbps = -1;           // width times speed; -1: unknown
    std::string link_layer;  // "InfiniBand", "Ethernet"; empty: unknown
    std::vector<Gid> gids;   // those that are none left out
};

struct RdmaDevice {
    std::string name;     // "mlx5_0"
    std::string refused;  // a sentence: why it cannot be opened or asked; then what follows is unknown
    std::array<uint8_t, 8> guid{};
    std::optional<bool> dma_buf;  // whether it registers what a dma-buf names
    std::vector<RdmaPort> ports;
};

// `library` as in WEFT_VERBS_LIBRARY. Opens each device and closes it again, which takes milliseconds each; the library
// itself may write warnings to standard error. Reentrant. Errors: there is no library, or the kernel has no RDMA.
Result<std::vector<RdmaDevice>> devices(const std::string& library);

}  // namespace weft::internal::verbs
