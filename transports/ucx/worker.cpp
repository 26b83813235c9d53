#include "transports/ucx/worker.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/segment/shm_layout.hpp"

namespace weft::internal::ucx {

// How long the end of a communicator waits for the network to take its last messages.
static constexpr int64_t close_us = 100'000;

void Buffers::Freed::operator()(std::byte* memory) const { free(memory); }

Result<std::shared_ptr<Buffers>> Buffers::make(const Library& library, int depth, size_t slot_bytes) {
    auto buffers = std::make_shared<Buffers>();
    const size_t count = size_t(depth);
    buffers->stride_ = round_to_line(std::max<size_t>(slot_bytes, 1));
    const size_t whole = buffers->stride_ * count;
    buffers->memory_.reset(static_cast<std::byte*>(aligned_alloc(line_bytes, whole)));
    if (!buffers->memory_)
        return fail(error::memory_exhausted, "there is no memory for a connection's slots of {} bytes", whole);
    memset(buffers->memory_.get(), 0, whole);
    buffers->transfers.resize(count);
    buffers->headers.resize(count);
    buffers->credit_transfers.resize(count);
    buffers->credits.resize(count);
    buffers->library_ = &library;
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = buffers->memory_.get();
    params.length = whole;
    if (const ucs_status_t status = library.ucp_mem_map(library.context, &params, &buffers->handle_); status != UCS_OK)
        return fail(
            error::ucx_broken,
            "UCX cannot register {} bytes for a connection's slots: {}; `ulimit -l` limits the memory that NICs "
            "may use",
            whole, library.text(status));
    return buffers;
}

Buffers::~Buffers() {
    if (handle_) (void)library_->ucp_mem_unmap(library_->context, handle_);
}

bool Buffers::active() const {
    const auto is_active = [](const Transfer& transfer) { return transfer.active; };
    return flush.active || std::any_of(transfers.begin(), transfers.end(), is_active) ||
           std::any_of(credit_transfers.begin(), credit_transfers.end(), is_active);
}

Result<std::shared_ptr<Worker>> Worker::of(const net::Identity& identity, int rank) {
    const auto& library = library_of_process();
    if (!library) return library.status().copy();
    return shared_by_process<Worker>(std::pair(identity.name, rank), [&]() -> Result<std::shared_ptr<Worker>> {
        auto worker = std::make_shared<Worker>(*library);
        WEFT_TRY(worker->init(rank));
        return worker;
    });
}

Status Worker::init(int rank) {
    const auto failed = [&](const char* what, ucs_status_t status) {
        return fail(error::ucx_unusable,
                    "rank {} cannot use UCX: {} failed: {}; UCX_TLS and UCX_NET_DEVICES choose its transports", rank,
                    what, library_.text(status));
    };
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    if (const ucs_status_t status = library_.ucp_worker_create(library_.context, &params, &worker_); status != UCS_OK)
        return worker_ = nullptr, failed("ucp_worker_create", status);
    ucp_worker_attr_t attributes{};
    attributes.field_mask =
        UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_THREAD_MODE | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
    if (const ucs_status_t status = library_.ucp_worker_query(worker_, &attributes); status != UCS_OK)
        return failed("ucp_worker_query", status);
    const auto* const begin = reinterpret_cast<const std::byte*>(attributes.address);
    address_.assign(begin, begin + attributes.address_length);
    library_.ucp_worker_release_address(worker_, attributes.address);
    if (attributes.thread_mode == UCS_THREAD_MODE_SINGLE)
        return fail(error::ucx_unusable, "rank {} cannot use UCX: it was built without support for threads", rank);
    if (attributes.max_am_header < sizeof(MessageHeader))
        return fail(error::ucx_unusable,
                    "rank {} cannot use UCX: headers of active messages have {} bytes at most, and {} are needed", rank,
                    attributes.max_am_header, sizeof(MessageHeader));
    if (const ucs_status_t status = library_.ucp_worker_get_efd(worker_, &descriptor_); status != UCS_OK)
        return failed("ucp_worker_get_efd", status);
    for (const auto& [id, handler] : {std::pair(message_id, &Worker::on_message), {credit_id, &Worker::on_credits}}) {
        ucp_am_handler_param_t am{};
        am.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
        am.id = id;
        am.cb = handler;
        am.arg = this;
        if (const ucs_status_t status = library_.ucp_worker_set_am_recv_handler(worker_, &am); status != UCS_OK)
            return failed("ucp_worker_set_am_recv_handler", status);
    }
    return ok();
}

Worker::~Worker() {
    if (!worker_) return;
    close_endpoints();
    library_.ucp_worker_destroy(worker_);
}

// Messages that were sent must still arrive, so endpoints are flushed before they are closed. Closing by force then needs
// nothing of the peer.
void Worker::close_endpoints() {
    const auto settle = [&](std::vector<Transfer>& transfers) {
        const int64_t until = now_us() + close_us;
        const auto is_active = [](const Transfer& transfer) { return transfer.active; };
        while (std::any_of(transfers.begin(), transfers.end(), is_active) && now_us() < until) progress();
        return std::none_of(transfers.begin(), transfers.end(), is_active);
    };
    // Leaked if UCX does not let go of it: it may still write there.
    auto& flushes = *new std::vector<Transfer>(peers_.size());
    auto& closes = *new std::vector<Transfer>(peers_.size());
    size_t index = 0;
    for (const auto& [rank, peer] : peers_)
        if (peer->status == UCS_OK && peer->unreleased > 0) flush(*peer, flushes[index++]);
    (void)settle(flushes);
    drain();  // the kernel resets a socket that is closed with unread data, and then drops what it has not sent
    index = 0;
    for (const auto& [rank, peer] : peers_) {
        Transfer& transfer = closes[index++];
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        param.cb.send = complete;
        param.user_data = &transfer;
        transfer.begin();
        ucs_status_ptr_t const request = library_.ucp_ep_close_nbx(peer->endpoint, &param);
        if (!UCS_PTR_IS_PTR(request)) transfer.end(UCS_PTR_RAW_STATUS(request));
    }
    if (!settle(closes) || !settle(flushes)) return;
    delete &flushes;
    delete &closes;
}

Result<Peer*> Worker::peer(int rank, const std::vector<std::byte>& address) {
    std::unique_ptr<Peer>& peer = peers_[rank];
    if (peer) return peer.get();
    peer = std::make_unique<Peer>();
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {on_error, peer.get()};
    if (const ucs_status_t status = library_.ucp_ep_create(worker_, &params, &peer->endpoint); status != UCS_OK) {
        peers_.erase(rank);
        return fail(error::ucx_broken,
                    "UCX finds no way to rank {}: {}; UCX_TLS and UCX_NET_DEVICES choose its transports, and both ends "
                    "need one in common",
                    rank, library_.text(status))
            .about({.rank = rank});
    }
    return peer.get();
}

// UCX arms the descriptor only if no event is left, some of which mean nothing here.
bool Worker::arm() {
    constexpr int most = 16;
    bool quiet = true;
    for (int turn = 0; turn < most; ++turn) {
        if (library_.ucp_worker_arm(worker_) == UCS_OK) return quiet;
        quiet = library_.ucp_worker_progress(worker_) == 0 && quiet;
    }
    return false;
}

void Worker::drain() {
    constexpr int most = 64;  // peers may send without end
    for (int turn = 0; turn < most && library_.ucp_worker_progress(worker_) != 0; ++turn) {
    }
}

void Worker::remove(uint64_t token, std::shared_ptr<Buffers> buffers) {
    inboxes_.erase(token);
    std::erase_if(kept_, [](const auto& each) { return !each->active(); });
    if (buffers->active()) kept_.push_back(std::move(buffers));
}

void Worker::complete(void* request, ucs_status_t status, void* transfer) {
    static_cast<Transfer*>(transfer)->end(status);
    (*library_of_process()).ucp_request_free(request);
}

void Worker::complete_receive(void* request, ucs_status_t status, size_t, void* transfer) {
    complete(request, status, transfer);
}

void Worker::post(Peer& peer, unsigned id, const void* header, size_t header_bytes, const std::byte* data, size_t bytes,
                  ucp_mem_h memory, Transfer& transfer) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = complete;
    param.user_data = &transfer;
    if (memory && bytes > 0) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        param.memh = memory;
    }
    transfer.begin();
    ucs_status_ptr_t const request =
        library_.ucp_am_send_nbx(peer.endpoint, id, header, header_bytes, data, bytes, &param);
    if (!UCS_PTR_IS_PTR(request)) transfer.end(UCS_PTR_RAW_STATUS(request));
}

void Worker::flush(Peer& peer, Transfer& transfer) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = complete;
    param.user_data = &transfer;
    transfer.begin();
    ucs_status_ptr_t const request = library_.ucp_ep_flush_nbx(peer.endpoint, &param);
    if (!UCS_PTR_IS_PTR(request)) transfer.end(UCS_PTR_RAW_STATUS(request));
}

void Worker::add_credits(Peer& peer, MessageHeader& header) {
    header.credited = std::exchange(peer.owing, 0);
    const auto place = inboxes_.find(header.credited);
    header.credits = place == inboxes_.end() ? 0 : place->second->take_credits();
}

// A message of a connection that has ended is dropped.
ucs_status_t Worker::on_message(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t* param) {
    MessageHeader message;
    if (header_bytes != sizeof message) return UCS_OK;
    memcpy(&message, header, sizeof message);
    const auto& inboxes = static_cast<Worker*>(self)->inboxes_;
    if (message.credits > 0)
        if (const auto credited = inboxes.find(message.credited); credited != inboxes.end())
            credited->second->on_credits(message.credits);
    const auto place = inboxes.find(message.connection);
    if (place == inboxes.end()) return UCS_OK;
    return place->second->on_message(message, data, bytes, (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
}

ucs_status_t Worker::on_credits(void* self, const void* header, size_t header_bytes, void*, size_t,
                                const ucp_am_recv_param_t*) {
    CreditHeader credit;
    if (header_bytes != sizeof credit) return UCS_OK;
    memcpy(&credit, header, sizeof credit);
    const auto& inboxes = static_cast<Worker*>(self)->inboxes_;
    if (const auto place = inboxes.find(credit.connection); place != inboxes.end())
        place->second->on_credits(credit.credits);
    return UCS_OK;
}

void Worker::on_error(void* peer, ucp_ep_h, ucs_status_t status) { static_cast<Peer*>(peer)->status = status; }

}  // namespace weft::internal::ucx
