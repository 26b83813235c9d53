// layout.hpp: the structs that libibverbs shares with its callers, with its memory layout (stable since IBVERBS_1.1).
// Fields of the data path have libibverbs' names. tests/verbs/layout_test.cpp compares all with the installed headers.
#pragma once
#include <pthread.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace weft::internal::verbs::abi {

struct DeviceRow {
    void* reserved[2];
    int node_type, transport_type;
    char name[64];          // "mlx5_0"
    char file[64];          // "uverbs0"
    char file_path[256];    // "/sys/class/infiniband_verbs/uverbs0"
    char device_path[256];  // "/sys/class/infiniband/mlx5_0"
};

struct DeviceLimits {
    uint64_t region_bytes, page_sizes;
    uint32_t vendor, part, hardware;
    int pairs, pair_requests;
    uint32_t flags;
    int sges, read_sges, queues, queue_entries, regions, domains;
    int reads[2];  // outstanding reads of a queue pair; the second is not used
};

struct DeviceAttributes {
    char firmware[64];
    uint8_t node_guid[8], system_guid[8];
    DeviceLimits limits;
    uint32_t rest[18];  // not used by Weft
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
    uint8_t flags;       // grh_required
    uint16_t capabilities2;
};

struct GidEntry {
    uint8_t gid[16];
    uint32_t index, port;
    uint32_t type;  // 0 InfiniBand, 1 RoCE version 1, 2 RoCE version 2
    uint32_t interface;
};

struct Context;     // an open device
struct Completion;  // below

struct Domain {
    Context* context;
    uint32_t handle;
};

struct Region {
    Context* context;
    Domain* domain;
    void* address;
    size_t bytes;
    uint32_t handle, lkey, rkey;
};

struct Channel {
    Context* context;
    int fd, references;
};

struct Queue {
    Context* context;
    Channel* channel;
    void* user;
    uint32_t handle;
    int entries;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    uint32_t completion_events, async_events;  // acknowledged
};

struct Pair {
    Context* context;
    void* user;
    Domain* domain;
    Queue *send_queue, *receive_queue;
    void* shared_receives;
    uint32_t handle, qp_num;
    int state, type;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    uint32_t async_events;  // acknowledged
};

struct Sge {
    uint64_t addr;
    uint32_t length, lkey;
};

struct SendRequest {
    uint64_t wr_id;
    SendRequest* next;
    Sge* sg_list;
    int num_sge, opcode;
    uint32_t send_flags;
    uint32_t imm_data;  // in network byte order
    uint64_t remote_addr;
    uint32_t rkey;
    uint32_t padding;
    uint64_t rest[9];  // of other opcodes
};

struct ReceiveRequest {
    uint64_t wr_id;
    ReceiveRequest* next;
    Sge* sg_list;
    int num_sge;
};

// After an error only wr_id, status, qp_num and vendor_err are valid.
struct Completion {
    uint64_t wr_id;
    int status, opcode;
    uint32_t vendor_err, byte_len;
    uint32_t imm_data;  // in network byte order
    uint32_t qp_num, src_qp, wc_flags;
    uint16_t pkey_index, slid;
    uint8_t sl, dlid_path_bits;
};

struct PairLimits {
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct PairInit {
    void* user;
    Queue *send_queue, *receive_queue;
    void* shared_receives;
    PairLimits limits;
    int type;
    int signal_all;
};

struct Route {
    alignas(8) uint8_t dgid[16];
    uint32_t flow_label;
    uint8_t sgid_index, hop_limit, traffic_class;
};

struct Address {
    Route grh;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct AddressHandle;  // only its address is used

struct PairTimes {
    uint8_t min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, other_port, other_timeout;
};

struct PairNumbers {
    uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
};

struct PairAttributes {
    int state, current_state, mtu, migration;
    PairNumbers numbers;
    uint32_t access;
    PairLimits limits;
    Address address[2];  // the second is not used
    uint16_t pkey_index[2];
    uint8_t draining[2];
    uint8_t max_rd_atomic, max_dest_rd_atomic;
    PairTimes times;
    uint32_t rate_limit;
};

struct Ece {
    uint32_t vendor, options, mask;
};

struct AsyncEvent {
    union {
        Queue* queue;
        Pair* pair;
        int port;
    } element;
    int type;
};

// The operations that the header calls inline. The others are exported functions.
struct Operations {
    void* first[11];
    int (*poll_cq)(Queue*, int, Completion*);
    int (*req_notify_cq)(Queue*, int);
    void* middle[12];
    int (*post_send)(Pair*, SendRequest*, SendRequest**);
    int (*post_recv)(Pair*, ReceiveRequest*, ReceiveRequest**);
    void* last[5];
};

struct Context {
    DeviceRow* device;
    Operations operations;
    int command_fd, async_fd, vectors;
    pthread_mutex_t mutex;
    void* extended;
};

}  // namespace weft::internal::verbs::abi
