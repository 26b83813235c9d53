// ends.hpp: the two ends of a connection over UCX. A message is an active message, whose data UCX sends at once or by
// rendezvous as it chooses. The receiver has a slot for each credit, so data go straight to their slot.
#pragma once
#include <memory>

#include "transports/transport.hpp"
#include "transports/ucx/door.hpp"
#include "transports/ucx/worker.hpp"

namespace weft::internal::ucx {

// The parts that both ends have. Thread-bound.
struct End {
    ConnectionOptions options;
    uint64_t token = 0;  // of the connection
    std::shared_ptr<Worker> worker;
    Door door;
    std::shared_ptr<Buffers> buffers;  // ends before worker
    Peer* peer = nullptr;              // null: the ends have not met yet

    // Advances the set-up by a step. True: there is an endpoint.
    Result<bool> meet();
    Status failed(const char* what, ucs_status_t status) const;
    void add_wakeups(Wakeups& wakeups) const;
};

Result<End> make_end(const ConnectionOptions& options, uint64_t token, std::shared_ptr<tcp::TcpConnection> connection);
std::unique_ptr<Receiver> make_receiver(End end);
Result<std::unique_ptr<Sender>> make_sender(End end);

}  // namespace weft::internal::ucx
