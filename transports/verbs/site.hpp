// site.hpp: the data that the unfinished links of an endpoint share on the service thread.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "src/control/control_connection.hpp"
#include "transports/verbs/events.hpp"
#include "transports/verbs/inbox.hpp"
#include "transports/verbs/lanes/lane.hpp"

namespace weft::internal::verbs {

// The completion queues of an endpoint. A link reserves room for all its requests, so that no queue overruns.
// Thread-bound to the service thread; the driving thread polls the queues that links bring.
class QueueRoom {
  public:
    Result<std::shared_ptr<CompletionQueue>> reserve(const Devices& devices, size_t device, int entries);
    // Of an earlier reserve(), whose requests no queue pair posted.
    void give_back(const std::shared_ptr<CompletionQueue>& queue, int entries);
    // New lanes get another one. Null: it is not known, or known to have failed.
    std::shared_ptr<CompletionQueue> fail(const abi::Queue* queue);

  private:
    struct Queue {
        size_t device;
        std::shared_ptr<CompletionQueue> queue;
        int left;
    };
    std::vector<Queue> queues_;
};

using Receivers = std::vector<std::shared_ptr<Incoming>>;

// Owned by the door. The constants are for all threads, the rest is thread-bound to the service thread.
struct Site {
    const net::Identity identity;
    const int rank;
    const Devices& devices;
    const Settings settings;
    const std::vector<Port> ports;
    const std::shared_ptr<Inbox> inbox;
    const std::shared_ptr<AcceptDispatcher> dispatcher;
    const uint64_t token;
    const std::shared_ptr<EventLog> events;

    QueueRoom queues{};
    std::map<uint32_t, std::shared_ptr<Incoming>> listening{};  // by the number of the connection

    bool flushes = false;           // a receiver's slots are in the memory of a GPU that needs flushes
    std::map<int, int> links_to{};  // links that are up, by the peer's rank

    Receivers listening_to(int peer) const;
    Service& service() const { return dispatcher->service(); }
    void tell(Inbox::News news) const { inbox->post(std::move(news)); }
};

}  // namespace weft::internal::verbs
