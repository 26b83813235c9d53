// Weft's own declarations of libibverbs against the header that is installed, of any version.
#include "src/drivers/verbs/layout.hpp"
#include "src/drivers/verbs/numbers.hpp"
#include "tests/catch.hpp"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>

namespace abi = weft::internal::verbs::abi;
namespace verbs = weft::internal::verbs;

#define SAME_PLACE(mine, my_field, theirs, field)                            \
    static_assert(offsetof(abi::mine, my_field) == offsetof(theirs, field)); \
    static_assert(sizeof(abi::mine::my_field) == sizeof(theirs::field))
#define SAME_OFFSET(mine, my_field, theirs, field) \
    static_assert(offsetof(abi::mine, my_field) == offsetof(theirs, field))

static_assert(sizeof(abi::DeviceRow) == sizeof(ibv_device));
SAME_PLACE(DeviceRow, name, ibv_device, name);
SAME_PLACE(DeviceRow, file, ibv_device, dev_name);
SAME_PLACE(DeviceRow, device_path, ibv_device, ibdev_path);

static_assert(sizeof(abi::DeviceAttributes) == sizeof(ibv_device_attr));
SAME_PLACE(DeviceAttributes, node_guid, ibv_device_attr, node_guid);
SAME_PLACE(DeviceAttributes, system_guid, ibv_device_attr, sys_image_guid);
SAME_PLACE(DeviceAttributes, limits.region_bytes, ibv_device_attr, max_mr_size);
SAME_PLACE(DeviceAttributes, limits.vendor, ibv_device_attr, vendor_id);
SAME_PLACE(DeviceAttributes, limits.pairs, ibv_device_attr, max_qp);
SAME_PLACE(DeviceAttributes, limits.pair_requests, ibv_device_attr, max_qp_wr);
SAME_PLACE(DeviceAttributes, limits.sges, ibv_device_attr, max_sge);
SAME_PLACE(DeviceAttributes, limits.queues, ibv_device_attr, max_cq);
SAME_PLACE(DeviceAttributes, limits.queue_entries, ibv_device_attr, max_cqe);
SAME_PLACE(DeviceAttributes, limits.regions, ibv_device_attr, max_mr);
SAME_OFFSET(DeviceAttributes, limits.reads, ibv_device_attr, max_qp_rd_atom);
SAME_PLACE(DeviceAttributes, keys_most, ibv_device_attr, max_pkeys);
SAME_PLACE(DeviceAttributes, ports, ibv_device_attr, phys_port_cnt);

static_assert(sizeof(abi::PortAttributes) >= offsetof(ibv_port_attr, flags) + 1);
SAME_PLACE(PortAttributes, state, ibv_port_attr, state);
SAME_PLACE(PortAttributes, mtu, ibv_port_attr, active_mtu);
SAME_PLACE(PortAttributes, gids, ibv_port_attr, gid_tbl_len);
SAME_PLACE(PortAttributes, keys, ibv_port_attr, pkey_tbl_len);
SAME_PLACE(PortAttributes, lid, ibv_port_attr, lid);
SAME_PLACE(PortAttributes, width, ibv_port_attr, active_width);
SAME_PLACE(PortAttributes, speed, ibv_port_attr, active_speed);
SAME_PLACE(PortAttributes, link_layer, ibv_port_attr, link_layer);

static_assert(sizeof(abi::GidEntry) == sizeof(ibv_gid_entry));
SAME_PLACE(GidEntry, index, ibv_gid_entry, gid_index);
SAME_PLACE(GidEntry, port, ibv_gid_entry, port_num);
SAME_PLACE(GidEntry, type, ibv_gid_entry, gid_type);
SAME_PLACE(GidEntry, interface, ibv_gid_entry, ndev_ifindex);

static_assert(sizeof(abi::Operations) == sizeof(ibv_context_ops));
SAME_OFFSET(Context, device, ibv_context, device);
SAME_OFFSET(Context, operations.poll_cq, ibv_context, ops.poll_cq);
SAME_OFFSET(Context, operations.req_notify_cq, ibv_context, ops.req_notify_cq);
SAME_OFFSET(Context, operations.post_send, ibv_context, ops.post_send);
SAME_OFFSET(Context, operations.post_recv, ibv_context, ops.post_recv);
SAME_PLACE(Context, async_fd, ibv_context, async_fd);

SAME_PLACE(Region, lkey, ibv_mr, lkey);
SAME_PLACE(Region, rkey, ibv_mr, rkey);
SAME_PLACE(Channel, fd, ibv_comp_channel, fd);
SAME_PLACE(Queue, context, ibv_cq, context);
SAME_PLACE(Queue, channel, ibv_cq, channel);
SAME_PLACE(Queue, entries, ibv_cq, cqe);
SAME_PLACE(Pair, context, ibv_qp, context);
SAME_PLACE(Pair, qp_num, ibv_qp, qp_num);
SAME_PLACE(Pair, state, ibv_qp, state);

static_assert(sizeof(abi::Sge) == sizeof(ibv_sge));
SAME_PLACE(Sge, lkey, ibv_sge, lkey);
static_assert(sizeof(abi::SendRequest) == sizeof(ibv_send_wr));
SAME_OFFSET(SendRequest, next, ibv_send_wr, next);
SAME_OFFSET(SendRequest, sg_list, ibv_send_wr, sg_list);
SAME_PLACE(SendRequest, num_sge, ibv_send_wr, num_sge);
SAME_PLACE(SendRequest, opcode, ibv_send_wr, opcode);
SAME_PLACE(SendRequest, send_flags, ibv_send_wr, send_flags);
SAME_PLACE(SendRequest, imm_data, ibv_send_wr, imm_data);
SAME_PLACE(SendRequest, remote_addr, ibv_send_wr, wr.rdma.remote_addr);
SAME_PLACE(SendRequest, rkey, ibv_send_wr, wr.rdma.rkey);
static_assert(sizeof(abi::ReceiveRequest) == sizeof(ibv_recv_wr));
SAME_PLACE(ReceiveRequest, num_sge, ibv_recv_wr, num_sge);

static_assert(sizeof(abi::Completion) == sizeof(ibv_wc));
SAME_PLACE(Completion, status, ibv_wc, status);
SAME_PLACE(Completion, opcode, ibv_wc, opcode);
SAME_PLACE(Completion, vendor_err, ibv_wc, vendor_err);
SAME_PLACE(Completion, byte_len, ibv_wc, byte_len);
SAME_PLACE(Completion, imm_data, ibv_wc, imm_data);
SAME_PLACE(Completion, qp_num, ibv_wc, qp_num);
SAME_PLACE(Completion, wc_flags, ibv_wc, wc_flags);

static_assert(sizeof(abi::PairInit) == sizeof(ibv_qp_init_attr));
SAME_OFFSET(PairInit, receive_queue, ibv_qp_init_attr, recv_cq);
SAME_PLACE(PairInit, limits, ibv_qp_init_attr, cap);
SAME_PLACE(PairInit, type, ibv_qp_init_attr, qp_type);
SAME_PLACE(PairInit, signal_all, ibv_qp_init_attr, sq_sig_all);
SAME_PLACE(PairLimits, max_inline_data, ibv_qp_cap, max_inline_data);
static_assert(sizeof(abi::Address) == sizeof(ibv_ah_attr));
SAME_PLACE(Address, grh.sgid_index, ibv_ah_attr, grh.sgid_index);
SAME_PLACE(Address, grh.traffic_class, ibv_ah_attr, grh.traffic_class);
SAME_PLACE(Address, dlid, ibv_ah_attr, dlid);
SAME_PLACE(Address, is_global, ibv_ah_attr, is_global);
SAME_PLACE(Address, port_num, ibv_ah_attr, port_num);
static_assert(sizeof(abi::PairAttributes) == sizeof(ibv_qp_attr));
SAME_PLACE(PairAttributes, state, ibv_qp_attr, qp_state);
SAME_PLACE(PairAttributes, mtu, ibv_qp_attr, path_mtu);
SAME_PLACE(PairAttributes, numbers.rq_psn, ibv_qp_attr, rq_psn);
SAME_PLACE(PairAttributes, numbers.sq_psn, ibv_qp_attr, sq_psn);
SAME_PLACE(PairAttributes, numbers.dest_qp_num, ibv_qp_attr, dest_qp_num);
SAME_PLACE(PairAttributes, access, ibv_qp_attr, qp_access_flags);
SAME_OFFSET(PairAttributes, address, ibv_qp_attr, ah_attr);
SAME_OFFSET(PairAttributes, pkey_index, ibv_qp_attr, pkey_index);
SAME_PLACE(PairAttributes, max_rd_atomic, ibv_qp_attr, max_rd_atomic);
SAME_PLACE(PairAttributes, max_dest_rd_atomic, ibv_qp_attr, max_dest_rd_atomic);
SAME_PLACE(PairAttributes, times.min_rnr_timer, ibv_qp_attr, min_rnr_timer);
SAME_PLACE(PairAttributes, times.port_num, ibv_qp_attr, port_num);
SAME_PLACE(PairAttributes, times.timeout, ibv_qp_attr, timeout);
SAME_PLACE(PairAttributes, times.retry_cnt, ibv_qp_attr, retry_cnt);
SAME_PLACE(PairAttributes, times.rnr_retry, ibv_qp_attr, rnr_retry);
static_assert(sizeof(abi::Ece) == sizeof(ibv_ece));
static_assert(sizeof(abi::AsyncEvent) == sizeof(ibv_async_event));
SAME_PLACE(AsyncEvent, type, ibv_async_event, event_type);

static_assert(verbs::access::remote_read == IBV_ACCESS_REMOTE_READ &&
              verbs::access::relaxed_ordering == IBV_ACCESS_RELAXED_ORDERING);
static_assert(verbs::opcode::write_with_imm == IBV_WR_RDMA_WRITE_WITH_IMM && verbs::opcode::send == IBV_WR_SEND &&
              verbs::opcode::read == IBV_WR_RDMA_READ);
static_assert(verbs::send_flag::signaled == IBV_SEND_SIGNALED && verbs::send_flag::inline_data == IBV_SEND_INLINE);
static_assert(verbs::completed::receive_write_with_imm == IBV_WC_RECV_RDMA_WITH_IMM &&
              verbs::completed::with_imm == IBV_WC_WITH_IMM && verbs::completed::read == IBV_WC_RDMA_READ);
static_assert(verbs::state::error == IBV_QPS_ERR && verbs::state::ready_to_send == IBV_QPS_RTS);
static_assert(verbs::attribute::access == IBV_QP_ACCESS_FLAGS && verbs::attribute::pkey_index == IBV_QP_PKEY_INDEX &&
              verbs::attribute::port == IBV_QP_PORT && verbs::attribute::address == IBV_QP_AV &&
              verbs::attribute::path_mtu == IBV_QP_PATH_MTU && verbs::attribute::timeout == IBV_QP_TIMEOUT &&
              verbs::attribute::retry_cnt == IBV_QP_RETRY_CNT && verbs::attribute::rnr_retry == IBV_QP_RNR_RETRY &&
              verbs::attribute::rq_psn == IBV_QP_RQ_PSN && verbs::attribute::sq_psn == IBV_QP_SQ_PSN &&
              verbs::attribute::max_rd_atomic == IBV_QP_MAX_QP_RD_ATOMIC &&
              verbs::attribute::max_dest_rd_atomic == IBV_QP_MAX_DEST_RD_ATOMIC &&
              verbs::attribute::min_rnr_timer == IBV_QP_MIN_RNR_TIMER &&
              verbs::attribute::dest_qp_num == IBV_QP_DEST_QPN);
static_assert(verbs::wc::flushed == IBV_WC_WR_FLUSH_ERR && verbs::wc::remote_access == IBV_WC_REM_ACCESS_ERR &&
              verbs::wc::retry_exceeded == IBV_WC_RETRY_EXC_ERR && verbs::wc::general == IBV_WC_GENERAL_ERR &&
              verbs::wc::rnr_retry_exceeded == IBV_WC_RNR_RETRY_EXC_ERR);
static_assert(verbs::event::device_fatal == IBV_EVENT_DEVICE_FATAL && verbs::event::port_error == IBV_EVENT_PORT_ERR &&
              verbs::event::gid_change == IBV_EVENT_GID_CHANGE && verbs::event::wq_fatal == IBV_EVENT_WQ_FATAL);
static_assert(verbs::pair_type_rc == IBV_QPT_RC && verbs::fork_unneeded == IBV_FORK_UNNEEDED &&
              verbs::link_ethernet == IBV_LINK_LAYER_ETHERNET && verbs::gid_roce_v2 == IBV_GID_TYPE_ROCE_V2 &&
              IBV_PORT_ACTIVE == 4);
#endif

// The comparison itself happens at compile time.
TEST_CASE("libibverbs' layouts are those of the installed header", "[verbs]") { SUCCEED(); }
