// pending_connections.hpp: the communicators that a listener knows, and their authenticated connections, which wait for
// the part of Weft that expects them.
#pragma once
#include <list>
#include <map>
#include <optional>
#include <string>

#include "src/base/fd.hpp"
#include "src/net/address.hpp"
#include "src/net/handshake.hpp"

namespace weft::internal::net {

// A connection that proved its communicator's secret.
struct AcceptedConnection {
    Fd socket;
    Purpose purpose;
    Address peer;
};

// Owned by Listener, used under its lock. Its functions explain theirs.
class PendingConnections {
  public:
    void register_identity(const Identity& identity, bool root);
    void unregister_identity(const IdName& name, bool root);
    // Null: the communicator is not registered.
    const Identity* identity(const IdName& name) const;
    bool is_root(const IdName& name) const;
    // The communicator is registered.
    void add(const IdName& name, AcceptedConnection connection);
    std::optional<AcceptedConnection> take(const IdName& name, uint32_t kind, std::optional<uint64_t> token);
    void set_trouble(const IdName& name, const std::string& sentence);
    Status trouble(const IdName& name) const;
    int descriptor(const IdName& name);

  private:
    struct Member {
        Identity identity;
        int registrations = 0;
        int roots = 0;  // registrations with `root`
        std::list<AcceptedConnection> pending;
        Fd signal;  // eventfd, made by the first descriptor()
        std::string trouble;
    };
    static void signal(Member& member);

    std::map<IdName, Member> members_;
};

}  // namespace weft::internal::net
