#include "src/drivers/verbs/path.hpp"

#include <algorithm>
#include <cstring>

namespace weft::internal::verbs {

namespace {

struct StatusRow {
    int status;
    const char *name, *hint;
};

// In the order of libibverbs' enumerators. The hints name causes of which users reported.
constexpr StatusRow status_rows[] = {
    {wc::success, "success", ""},
    {wc::local_length, "local length error", "a message is longer than the buffer that was posted for it: report it"},
    {wc::local_operation, "local QP operation error",
     "the link of the own port went down, the address of its GID went away, or a request was malformed: look at the "
     "port's state and addresses"},
    {wc::local_protection, "local protection error",
     "the memory of the request is not registered; with GPUs and PCIe switches, ACS or an IOMMU may redirect access"},
    {wc::flushed, "flushed", "the queue pair had failed before: look at the first error"},
    {wc::window_bind, "memory window bind error", "report it"},
    {wc::bad_response, "bad response", "the peer's device answered wrongly: compare the firmware of both ends"},
    {wc::local_access, "local access error", "the memory for the data does not allow local writes: report it"},
    {wc::remote_invalid_request, "remote invalid request",
     "the peer's device does not accept the request: compare access rights, MTU and firmware of both ends"},
    {wc::remote_access, "remote access error",
     "the peer's memory key is no longer valid: the peer restarted, or its memory was released"},
    {wc::remote_operation, "remote operation error", "the peer's device failed: look at the peer's log"},
    {wc::retry_exceeded, "retries exceeded",
     "the peer does not answer: the peer died, a link or switch failed, or the GIDs, the route, the MTU or flow "
     "control (PFC, traffic class) of the ends do not fit; a slow network needs a longer timeout"},
    {wc::rnr_retry_exceeded, "receiver-not-ready retries exceeded",
     "the peer has posted no receive request: it hangs, or this is a defect; look at the peer's stack"},
    {wc::remote_aborted, "remote abort", "the peer's device was reset"},
    {wc::fatal, "fatal error", "the own device failed: look at the kernel's log"},
    {wc::response_timeout, "response timeout", "the peer's device did not answer in time"},
    {wc::general, "general error", "the own device failed: look at the kernel's log"},
};

const StatusRow* status_row(int status) {
    const auto* found = std::find_if(std::begin(status_rows), std::end(status_rows),
                                     [&](const StatusRow& row) { return row.status == status; });
    return found == std::end(status_rows) ? nullptr : found;
}

}  // namespace

int mtu_bytes(int mtu) { return mtu >= 1 && mtu <= 5 ? 128 << mtu : 0; }

int path_mtu(const PathEnd& own, const PathEnd& peer) { return std::clamp(std::min(own.mtu, peer.mtu), 1, 5); }

bool needs_grh(const PathEnd& own, const PathEnd& peer) {
    if (own.link_layer == link_ethernet || own.needs_grh || peer.needs_grh) return true;
    return memcmp(own.gid.bytes.data(), peer.gid.bytes.data(), 8) != 0;
}

Result<abi::Address> path_address(const PathEnd& own, const PathEnd& peer, const PathOptions& options) {
    if (own.link_layer != peer.link_layer)
        return fail(error::verbs_path, "{} is on {}, but {} is on {}", described(own),
                    own.link_layer == link_ethernet ? "Ethernet" : "InfiniBand", described(peer),
                    peer.link_layer == link_ethernet ? "Ethernet" : "InfiniBand");
    const bool global = needs_grh(own, peer);
    if (!global && (own.lid == 0 || peer.lid == 0))
        return fail(error::verbs_path, "{} has no LID; a subnet manager must run on its network",
                    described(own.lid == 0 ? own : peer));
    abi::Address address{};
    address.port_num = uint8_t(own.port);
    address.sl = uint8_t(options.service_level);
    if (own.link_layer == link_infiniband) address.dlid = peer.lid;
    if (global) {
        address.is_global = 1;
        memcpy(address.grh.dgid, peer.gid.bytes.data(), sizeof address.grh.dgid);
        address.grh.sgid_index = uint8_t(own.gid.index);
        address.grh.hop_limit = uint8_t(options.hop_limit);
        address.grh.traffic_class = uint8_t(options.traffic_class);
        address.grh.flow_label = options.flow_label & 0xfffff;
    }
    return address;
}

std::string described(const PathEnd& end) {
    std::string text = fmt::format("{} {}:{}", end.host, end.device, end.port);
    if (end.link_layer == link_infiniband) text += fmt::format(" LID {}", end.lid);
    text += fmt::format(" GID {} {}", end.gid.index, end.gid.address());
    if (!end.gid.interface.empty()) text += fmt::format(" ({})", end.gid.interface);
    return text + fmt::format(" QP {:#x}", end.pair);
}

std::string completion_status_text(int status) {
    const StatusRow* row = status_row(status);
    return row ? row->name : "unknown status";
}

bool is_of_path(int status) {
    constexpr int causes[] = {
        wc::local_operation,    wc::flushed,        wc::bad_response, wc::remote_operation, wc::retry_exceeded,
        wc::rnr_retry_exceeded, wc::remote_aborted, wc::fatal,        wc::response_timeout, wc::general};
    return std::find(std::begin(causes), std::end(causes), status) != std::end(causes);
}

Status completion_error(const abi::Completion& completion, const PathEnd& own, const PathEnd& peer,
                        const PathOptions& options) {
    const StatusRow* row = status_row(completion.status);
    return fail(
        error::verbs_completion,
        "an RDMA request from {} to {} failed: {} (status {}, vendor code {:#x}; MTU {}, service level {}, traffic "
        "class {}, timeout {}, retries {}); {}",
        described(own), described(peer), completion_status_text(completion.status), completion.status,
        completion.vendor_err, mtu_bytes(path_mtu(own, peer)), options.service_level, options.traffic_class,
        options.timeout, options.retries, row ? row->hint : "look up the status in libibverbs");
}

}  // namespace weft::internal::verbs
