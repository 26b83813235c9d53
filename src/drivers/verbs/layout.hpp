// layout.hpp: the structs that libibverbs fills in, with its memory layout (stable since IBVERBS_1.1).
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace weft::internal::verbs {

struct Context;  // an open device
struct Domain;   // a protection domain
struct Region;   // registered memory

struct DeviceRow {
    void* reserved[2];
    int node_type, transport_type;
    char name[64];          // "mlx5_0"
    char file[64];          // "uverbs0"
    char file_path[256];    // "/sys/class/infiniband_verbs/uverbs0"
    char device_path[256];  // "/sys/class/infiniband/mlx5_0"
};

struct DeviceAttributes {
    char firmware[64];
    uint8_t node_guid[8], system_guid[8];
    uint64_t rest[18];  // not used by Weft
    uint16_t keys_most;
    uint8_t ack_delay, ports;
    uint32_t padding;
};

struct PortAttributes {
    int state;  // 1 down, 2 initialising, 3 armed, 4 active, 5 temporarily active
    int mtu_most, mtu;
    int gids;
    uint32_t capabilities, message_bytes_most, bad_keys, violations;
    uint16_t keys, lid, manager_lid;
    uint8_t lid_mask, tracks_most, manager_level, subnet_timeout, init_reply;
    uint8_t width;  // one bit: 1, 4, 8, 12 or 2 lanes
    uint8_t speed;  // one bit: the speed of each lane
    uint8_t physical_state;
    uint8_t link_layer;  // 1 InfiniBand, 2 Ethernet
    uint8_t flags;
    uint16_t capabilities2;
};

struct GidEntry {
    uint8_t gid[16];
    uint32_t index, port;
    uint32_t type;  // 0 InfiniBand, 1 RoCE version 1, 2 RoCE version 2
    uint32_t interface;
};

}  // namespace weft::internal::verbs
