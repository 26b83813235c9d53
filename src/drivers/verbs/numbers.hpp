// numbers.hpp: libibverbs' enumerators that Weft uses. tests/verbs/layout_test.cpp compares them with its header.
#pragma once
#include <cstdint>

namespace weft::internal::verbs {

namespace access {
inline constexpr int local_write = 1, remote_write = 2, remote_read = 4, remote_atomic = 8, relaxed_ordering = 1 << 20;
}

namespace opcode {  // of a send request
inline constexpr int write = 0, write_with_imm = 1, send = 2, send_with_imm = 3, read = 4;
}

namespace send_flag {
inline constexpr uint32_t fence = 1, signaled = 2, solicited = 4, inline_data = 8;
}

namespace completed {  // the opcode of a completion
inline constexpr int send = 0, write = 1, read = 2, receive = 128, receive_write_with_imm = 129;
inline constexpr uint32_t with_imm = 2;  // in wc_flags
}  // namespace completed

namespace state {  // of a queue pair
inline constexpr int reset = 0, init = 1, ready_to_receive = 2, ready_to_send = 3, error = 6;
}

namespace attribute {  // of modify_qp's mask
inline constexpr int state = 1, access = 1 << 3, pkey_index = 1 << 4, port = 1 << 5, address = 1 << 7,
                     path_mtu = 1 << 8, timeout = 1 << 9, retry_cnt = 1 << 10, rnr_retry = 1 << 11, rq_psn = 1 << 12,
                     max_rd_atomic = 1 << 13, min_rnr_timer = 1 << 15, sq_psn = 1 << 16, max_dest_rd_atomic = 1 << 17,
                     dest_qp_num = 1 << 20;
}

namespace wc {  // the status of a completion
inline constexpr int success = 0, local_length = 1, local_operation = 2, local_protection = 4, flushed = 5,
                     window_bind = 6, bad_response = 7, local_access = 8, remote_invalid_request = 9,
                     remote_access = 10, remote_operation = 11, retry_exceeded = 12, rnr_retry_exceeded = 13,
                     remote_aborted = 16, fatal = 19, response_timeout = 20, general = 21;
}

namespace event {
inline constexpr int cq_error = 0, qp_fatal = 1, qp_request_error = 2, qp_access_error = 3,
                     communication_established = 4, sq_drained = 5, path_migrated = 6, path_migration_error = 7,
                     device_fatal = 8, port_active = 9, port_error = 10, lid_change = 11, pkey_change = 12,
                     sm_change = 13, srq_error = 14, srq_limit = 15, last_wqe_reached = 16, client_reregister = 17,
                     gid_change = 18, wq_fatal = 19, speed_change = 20;
}

inline constexpr int pair_type_rc = 2;
inline constexpr int fork_disabled = 0, fork_enabled = 1, fork_unneeded = 2;
inline constexpr int transport_infiniband = 0;  // of a device, also of RoCE
inline constexpr int link_infiniband = 1, link_ethernet = 2;
inline constexpr int grh_required = 1;  // of a port's flags
inline constexpr int gid_infiniband = 0, gid_roce_v1 = 1, gid_roce_v2 = 2;

}  // namespace weft::internal::verbs
