// door.hpp: the part of an endpoint that runs on the service thread: it knows the receivers that listen, and makes the
// links. The process's listener passes it the sockets of peers.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "src/control/control_connection.hpp"
#include "transports/verbs/inbox.hpp"
#include "transports/verbs/link.hpp"
#include "transports/verbs/link_setup.hpp"

namespace weft::internal::verbs {

// The completion queues of an endpoint. A link reserves room for all its requests, so that no queue overruns.
// Thread-bound to the service thread; the driving thread polls the queues that links bring.
class QueueRoom {
  public:
    Result<std::shared_ptr<CompletionQueue>> reserve(const Devices& devices, size_t device, int entries);

  private:
    struct Queue {
        size_t device;
        std::shared_ptr<CompletionQueue> queue;
        int left;
    };
    std::vector<Queue> queues_;
};

// Public functions are thread-safe; their work runs on the service thread.
class Door : public std::enable_shared_from_this<Door> {
  public:
    static Result<std::shared_ptr<Door>> open(const net::Identity& identity, int rank, const Devices& devices,
                                              const Settings& settings, std::vector<Port> ports,
                                              std::shared_ptr<Inbox> inbox);
    // The endpoint ends: no news come afterwards, and the peers are told.
    void end();

    uint64_t token() const { return token_; }
    const std::vector<net::Address>& addresses() const { return dispatcher_->listener().addresses(); }
    void listen(uint32_t number, std::shared_ptr<Incoming> incoming);
    void connect(const ListenAddress& address, std::shared_ptr<Outgoing> outgoing);
    void tell_failure(uint32_t link, Status why);

    // For LinkSetup, on the service thread.
    Service& service() { return dispatcher_->service(); }
    const std::shared_ptr<AcceptDispatcher>& dispatcher() { return dispatcher_; }
    const net::Identity& identity() const { return identity_; }
    int rank() const { return rank_; }
    const Devices& devices() const { return devices_; }
    const Settings& settings() const { return settings_; }
    const std::vector<Port>& ports() const { return ports_; }
    QueueRoom& queues() { return queues_; }
    void tell(Inbox::News news) { inbox_->post(std::move(news)); }
    // Null: there is none.
    std::shared_ptr<Incoming> listening(uint32_t number) const;
    std::vector<std::shared_ptr<Incoming>> listening_to(int peer) const;

  private:
    Door(const net::Identity& identity, int rank, const Devices& devices, const Settings& settings,
         std::vector<Port> ports, std::shared_ptr<Inbox> inbox, std::shared_ptr<AcceptDispatcher> dispatcher);
    // A peer's socket that belongs to no link: its offer has not come, or the own socket counts.
    struct Visitor {
        std::unique_ptr<ControlConnection> connection;
        std::shared_ptr<LinkSetup*> route;  // who takes its frames, once it is adopted
    };
    void begin();
    void accept(net::AcceptedConnection accepted);
    void take_hello(uint64_t visitor, uint32_t kind, ByteReader& content);
    LinkSetup& setup_for(uint64_t token, int peer);
    void fail_all(ErrorId error, const char* what);

    const net::Identity identity_;
    const int rank_;
    const Devices& devices_;
    const Settings settings_;
    const std::vector<Port> ports_;
    const std::shared_ptr<Inbox> inbox_;
    const std::shared_ptr<AcceptDispatcher> dispatcher_;
    const uint64_t token_;

    // On the service thread.
    QueueRoom queues_;
    std::map<uint32_t, std::shared_ptr<Incoming>> listening_;
    std::map<uint64_t, std::unique_ptr<LinkSetup>> links_;  // by the peer's token
    std::vector<LinkSetup*> by_index_;
    std::map<uint64_t, Visitor> visitors_;
    uint64_t next_visitor_ = 0;
    bool ended_ = false;
};

}  // namespace weft::internal::verbs
