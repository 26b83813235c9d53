// lost_packets.hpp: an MTU that is larger than the path takes. Small packets pass, so hosts meet and heartbeats come, but
// large ones vanish where a router or switch drops them and tells nobody.
#pragma once
#include <string>

namespace weft::net {

// Of a connection whose peer is known to live. Empty: what was sent arrives, or nothing is known. Else a sentence: the
// kernel sends large packets again and again. Reentrant.
std::string lost_packets(int socket);

// The same seen from the other end, which waits for what the peer has sent. Empty: nothing points at lost packets.
std::string missing_packets(int socket);

// Has a socket looked at by lost_packets_of_process, as long as it lives; it ends before the socket is closed.
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

}  // namespace weft::net
