#include "src/train/server/server_link.hpp"

#include <unistd.h>

#include <utility>

#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// Only whole pages can be pinned.
size_t whole_pages(size_t bytes) {
    const auto page = size_t(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
}

}  // namespace

Result<std::unique_ptr<ServerLink>> ServerLink::make(weftComm_t parent, int color, int peer, int64_t timeout_ms,
                                                     MemorySpace& space, size_t bytes) {
    std::unique_ptr<ServerLink> link(new ServerLink);
    link->peer_ = peer;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.commName = "parameter server";
    config.timeoutMs = timeout_ms;
    int rank = 0;
    WEFT_TRY(called(weftCommUserRank(parent, &rank)));
    WEFT_TRY(called(weftCommSplit(parent, color, rank, &link->comm_, &config)));
    if (color < 0) return std::unique_ptr<ServerLink>();
    WEFT_TRY(called(weftCommUserRank(link->comm_, &rank)));
    link->other_ = 1 - rank;
    for (FlatBuffer* const buffer : {&link->outgoing_, &link->received_}) {
        auto memory = FlatBuffer::allocate(*link->host_, whole_pages(bytes));
        if (!memory) return memory.take_status();
        *buffer = std::move(*memory);
    }
    WEFT_TRY(
        called(weftCommWindowRegister(link->comm_, link->received_.data(), bytes, &link->window_, WEFT_WIN_DEFAULT)));
    for (auto [pin, buffer] :
         {std::pair(&link->outgoing_pin_, &link->outgoing_), std::pair(&link->received_pin_, &link->received_)}) {
        if (!space.on_device()) break;
        auto pinned = pin_for(space.device(), buffer->data(), buffer->bytes());
        if (!pinned) return pinned.take_status();
        *pin = std::move(*pinned);
    }
    return link;
}

ServerLink::~ServerLink() {
    if (comm_ && !aborted_.exchange(true)) (void)weftCommDestroy(comm_);
}

Status ServerLink::send(size_t bytes) {
    return explained(called(weftPutSignal(outgoing(), bytes, weftUint8, other_, window_, 0, 0, 0, 0, comm_, nullptr)));
}

Status ServerLink::wait() {
    const weftWaitSignalDesc_t signal = {.opCnt = 1, .peer = other_, .sigIdx = 0, .ctx = 0};
    return explained(called(weftWaitSignal(1, &signal, comm_, nullptr)));
}

void ServerLink::end() { (void)weftCommWindowDeregister(comm_, window_); }

void ServerLink::abort() {
    if (!aborted_.exchange(true)) (void)weftCommAbort(comm_);
}

Status ServerLink::explained(Status status) const {
    if (status) return status;
    return fail(status, "the link to rank {} failed: {}", peer_, status.sentence()).about({.rank = peer_});
}

}  // namespace weft::internal::train
