// server_connection.hpp: a stream to a launcher's server: sends whole requests, and receives whole lines or counts of
// bytes, by a deadline.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"
#include "src/net/address.hpp"
#include "src/rendezvous/deadline.hpp"

namespace weft::internal {

// Blocks, but never past its deadline. Failures name the server and the awaited answer: launcher.timeout at the
// deadline, launcher.lost if the server ended or sent something else. Thread-bound.
class ServerConnection {
  public:
    // Owns the socket.
    ServerConnection(std::string server, Fd socket, Deadline deadline);
    // Borrows the socket, which its owner may use later.
    ServerConnection(std::string server, int descriptor, Deadline deadline);

    // Connects over TCP to the first address that answers. A name without an address (pods, new hosts) is looked up
    // again until the deadline. Empty if no process listens there.
    static Result<std::optional<ServerConnection>> connect(std::string server, const std::string& host, uint16_t port,
                                                           Deadline deadline);

    const std::string& server() const { return server_; }
    const Deadline& deadline() const { return deadline_; }
    // The address at which connect() reached the server.
    const net::Address& peer() const { return peer_; }
    Status send(std::string_view bytes);
    // `what` is the awaited answer in a sentence, such as "the answer to `get`".
    Result<std::string> receive(size_t bytes, const std::string& what);
    // Without its end of line. A line longer than `most` is a failure.
    Result<std::string> receive_line(size_t most, const std::string& what);
    // The failure of an unexpected answer; contains its beginning.
    Status unexpected_answer(const std::string& what, std::string_view answer) const;

  private:
    Status receive_some(const std::string& what);
    Status wait(short events, const std::string& what);

    std::string server_;
    net::Address peer_;
    Fd owned_;
    int descriptor_;
    Deadline deadline_;
    std::string ahead_;  // received and not returned yet
};

// Text made fit for a log: one line, printable, at most `most` characters.
std::string shown(std::string_view text, size_t most = 60);

}  // namespace weft::internal
