// server_connection.hpp: a stream to a launcher's server: whole requests out, whole lines or counts of bytes in, by a deadline.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"
#include "src/net/address.hpp"
#include "src/rendezvous/deadline.hpp"

namespace weft::internal {

// Blocks, but never past its deadline. Failures name the server and what was waited for: weftTimeout when the deadline
// passed, weftRemoteError when the server went away or does not speak as expected, weftSystemError for the rest.
// Thread-bound.
class ServerConnection {
  public:
    // A connection that is ours alone.
    ServerConnection(std::string server, Fd socket, Deadline deadline);
    // A socket that somebody else owns, and may use after us.
    ServerConnection(std::string server, int descriptor, Deadline deadline);

    // Connects over TCP to the first address that answers; a name that is not known yet (pods, new hosts) is asked for
    // again. Empty if nobody listens there.
    static Result<std::optional<ServerConnection>> connect(std::string server, const std::string& host, uint16_t port,
                                                           Deadline deadline);

    const std::string& server() const { return server_; }
    const Deadline& deadline() const { return deadline_; }
    // Where connect() reached the server.
    const net::Address& peer() const { return peer_; }
    Status send(std::string_view bytes);
    // `what` is waited for, as a sentence has it: "the answer to `get`".
    Result<std::string> receive(size_t bytes, const std::string& what);
    // Without its end of line; a longer one than `most` is no line of this server.
    Result<std::string> receive_line(size_t most, const std::string& what);
    // The failure of a server that answers what it should not; shows the begin of it.
    Status unexpected_answer(const std::string& what, std::string_view answer) const;

  private:
    Status receive_some(const std::string& what);
    Status wait(short events, const std::string& what);

    std::string server_;
    net::Address peer_;
    Fd owned_;
    int descriptor_;
    Deadline deadline_;
    std::string ahead_;  // received, not asked for yet
};

// Text as a log can show it: one line, printable, at most `most` characters.
std::string shown(std::string_view text, size_t most = 60);

}  // namespace weft::internal
