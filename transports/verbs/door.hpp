// door.hpp: the part of an endpoint that runs on the service thread: it knows the receivers that listen, and makes the
// links. The process's listener passes it the sockets of peers.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "transports/verbs/link_setup.hpp"
#include "transports/verbs/site.hpp"

namespace weft::internal::verbs {

// Public functions are thread-safe; their work runs on the service thread.
class Door : public std::enable_shared_from_this<Door> {
  public:
    static Result<std::shared_ptr<Door>> open(const net::Identity& identity, int rank, const Devices& devices,
                                              const Settings& settings, std::vector<Port> ports,
                                              std::shared_ptr<Inbox> inbox);
    // The endpoint ends: no news come afterwards, and the peers are told.
    void end();

    uint64_t token() const { return site_.token; }
    const std::vector<net::Address>& addresses() const { return site_.dispatcher->listener().addresses(); }
    void listen(uint32_t number, std::shared_ptr<Incoming> incoming);
    void connect(const ListenAddress& address, std::shared_ptr<Outgoing> outgoing);
    void tell_failure(uint32_t link, Status why);
    void tell_lane(uint32_t link, const LaneNotice& notice);

  private:
    explicit Door(Site site) : site_(std::move(site)) {}
    // A peer's socket that belongs to no link: its offer has not come, or the own socket counts.
    struct Visitor {
        std::unique_ptr<ControlConnection> connection;
        std::shared_ptr<LinkSetup*> route;  // who takes its frames, once it is adopted
    };
    void begin();
    void take_socket(net::AcceptedConnection accepted);
    void take_hello(uint64_t visitor, uint32_t kind, ByteReader& content);
    LinkSetup& setup_for(uint64_t token, int peer);
    void fail_all(ErrorId error, const char* what);
    void take_event(size_t device, const Event& event);

    Site site_;
    // On the service thread.
    std::map<uint64_t, std::unique_ptr<LinkSetup>> links_;  // by the peer's token
    std::vector<LinkSetup*> by_index_;
    std::map<uint64_t, Visitor> visitors_;
    uint64_t next_visitor_ = 0;
    bool ended_ = false;
};

}  // namespace weft::internal::verbs
