// lost_packets.hpp: an MTU that is larger than the path takes. Small packets pass, so hosts meet and heartbeats come, but
// large ones vanish where a router or switch drops them and tells nobody.
#pragma once
#include <string>

namespace weft::internal::net {

// For a connection whose peer is known to live. Returns a sentence if the kernel sends large packets again and again.
// Empty: packets arrive, or nothing is known. Reentrant.
std::string lost_packets(int socket);

// The same at the other end, which waits for the peer's packets. Empty: nothing points at lost packets.
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
// The sentence of one of them; empty: there is none. Thread-safe.
std::string lost_packets_of_process();

}  // namespace weft::internal::net
