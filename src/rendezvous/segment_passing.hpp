// segment_passing.hpp: the leader of a host passes the shared segment to the other processes of the host. It listens at
// a Unix socket; a client proves the secret by the handshake of net/handshake.hpp, and then receives the descriptors of
// the segment and of its doorbell.
#pragma once
#include <poll.h>

#include <list>
#include <memory>
#include <vector>

#include "src/base/fd.hpp"
#include "src/net/handshake.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// Fails if the process at the other end of a Unix socket runs as another user; fills its pid.
Status check_user(int socket, int& pid);

// The leader's end. Owned by HostRendezvous, used under its lock.
class SegmentServer {
  public:
    SegmentServer(Fd listener, std::shared_ptr<Segment> segment, const net::Identity& identity);
    // One step for all clients. A client that breaks the protocol is dropped, so that it cannot harm the rendezvous.
    Status advance();
    // The rendezvous has failed. Clients that have connected still get the segment, which has the error. Otherwise they
    // would see only that the leader closes the connection.
    void answer_last_clients();
    void add_descriptors(std::vector<pollfd>& list) const;

  private:
    struct Client {
        Fd socket;
        int pid = 0;
        net::ServerHandshake handshake;
        bool welcome = false;
        int64_t since_us = 0;
    };
    Result<bool> advance(Client& client);

    Fd listener_;
    std::shared_ptr<Segment> segment_;
    net::Identity identity_;
    std::list<Client> clients_;
};

// A client's end. Owned by HostRendezvous, used under its lock.
class SegmentClient {
  public:
    // `socket`: connected to the leader, which is process `leader_pid`.
    SegmentClient(Fd socket, int leader_pid, const net::Identity& identity);
    // The segment once the leader has passed it; null before.
    Result<std::shared_ptr<Segment>> advance();
    void add_descriptors(std::vector<pollfd>& list) const;

  private:
    Status lost_leader(Status cause) const;

    Fd socket_;
    int leader_pid_;
    net::ClientHandshake handshake_;
    bool welcome_ = false;
};

}  // namespace weft::internal
