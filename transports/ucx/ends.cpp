#include "transports/ucx/ends.hpp"

namespace weft::internal::ucx {

Result<End> make_end(const ConnectionOptions& options, uint64_t token, std::shared_ptr<tcp::TcpConnection> connection) {
    auto worker = Worker::of(*options.identity, options.self);
    if (!worker) return worker.take_status();
    auto buffers = Buffers::make((*worker)->library(), options.depth, options.slot_bytes);
    if (!buffers) return buffers.take_status();
    Door door(std::move(connection), (*worker)->address());
    return End{options, token, std::move(*worker), std::move(door), std::move(*buffers)};
}

Result<bool> End::meet() {
    if (peer) [[likely]]
        return true;
    auto exchanged = door.exchange();
    if (!exchanged)
        return fail(exchanged.status(), "rank {} cannot connect to rank {} over ucx: {}", options.self, options.peer,
                    exchanged.status().sentence());
    if (!*exchanged) return false;
    auto found = worker->peer(options.peer, door.peer());
    if (!found) return found.take_status();
    peer = *found;
    return true;
}

Status End::failed(const char* what, ucs_status_t status) const {
    return fail(error::ucx_broken, "rank {} cannot {} rank {} over ucx: {}", options.self, what, options.peer,
                worker->library().text(status))
        .about({.rank = options.peer, .peer = options.self});
}

void End::add_wakeups(Wakeups& wakeups) const {
    if (!peer) return door.add_descriptors(wakeups);
    if (worker->arm())
        wakeups.descriptors.push_back({worker->descriptor(), POLLIN, 0});
    else
        wakeups.ready = true;
}

}  // namespace weft::internal::ucx
