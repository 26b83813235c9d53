// lost_packets.hpp: finds an MTU that is larger than the path allows. Small packets pass, so hosts connect and
// heartbeats come, but a router or switch drops large ones silently.
#pragma once
#include <string>

namespace weft::internal::net {

// For a connection whose peer is alive. Returns a sentence if the kernel retransmits large packets again and again.
// Empty: packets arrive, or nothing is known. Reentrant.
std::string lost_packets(int socket);

// The same at the other end, which waits for the peer's packets. Empty: there is no sign of lost packets.
std::string missing_packets(int socket);

// While it lives, lost_packets_of_process also checks this socket. Destroy it before the socket is closed.
class WatchedSocket {
  public:
    explicit WatchedSocket(int socket);
    ~WatchedSocket();
    WatchedSocket(const WatchedSocket&) = delete;
    WatchedSocket& operator=(const WatchedSocket&) = delete;

  private:
    int socket_;
};
// The sentence of one of these sockets; empty: none loses packets. Thread-safe.
std::string lost_packets_of_process();

}  // namespace weft::internal::net
