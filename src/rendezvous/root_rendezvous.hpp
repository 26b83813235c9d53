// root_rendezvous.hpp: the root, at which the hosts of a communicator check in. It runs on the service thread of the
// process that made the unique id, or of rank 0's process if all ranks derived the id. It tells every leader where to
// wait (CheckInTree), so that few stay connected to it. When all ranks have checked in it sends the rank table to these,
// and is not needed any more. It sends the first failure to all hosts, also to those that come later.
#pragma once
#include <atomic>
#include <functional>
#include <list>
#include <memory>

#include "src/control/control_connection.hpp"
#include "src/rendezvous/roster.hpp"

namespace weft::internal {

class RootRendezvous {
  public:
    // Thread-safe. Open as long as it lives. `on_use` is called on the service thread when the first host connects.
    RootRendezvous(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity,
                   std::function<void()> on_use = {});
    ~RootRendezvous();
    // All hosts that have connected know the outcome.
    bool finished() const { return finished_.load(std::memory_order_acquire); }

    // Keeps a root open until it has finished, for a process that makes an id and does not wait. At the end of the
    // process it waits briefly for hosts that are slow to receive the rank table. Thread-safe.
    static void keep(std::unique_ptr<RootRendezvous> root, const net::IdName& name);
    // Closes the root of this id if it was opened here and no host has checked in: all ranks joined without it.
    static void release(const net::IdName& name);
    // Closes the kept roots that have finished.
    static void close_finished();

    // So far. Thread-safe.
    CheckInTraffic traffic();

  private:
    // A connection. It ends when its leader waits elsewhere.
    struct Client {
        enum State { fresh, here, moving, elsewhere };  // fresh: it has not checked in; moving: to its parent
        std::unique_ptr<ControlConnection> link;
        int place = 0;
        State state = fresh;
    };
    void welcome(net::AcceptedConnection accepted);
    void on_frame(Client& client, CheckInFrame kind, ByteReader& content);
    void on_end(Client& client, const Status& why);
    Status read(Client& client, CheckInFrame kind, ByteReader& content);
    Status check_in(Client& client, ByteReader& content);
    Status read_lost(ByteReader& content);
    void send(Client& client, CheckInFrame kind, const ByteWriter& content);
    void finish();
    void end_without_table(const Client& alone);
    void refuse(Client& client, const Status& why);
    void refuse_used(Client& client);
    void fail_all(Status failure);
    void tell_waiting();
    std::string obstacle() const;

    std::shared_ptr<AcceptDispatcher> dispatcher_;
    net::Identity identity_;
    std::function<void()> on_use_;
    std::list<Client> clients_;
    int moving_ = 0;  // clients in this state
    Roster roster_;
    CheckInTraffic traffic_;
    Status failure_;
    uint64_t timer_ = 0;
    std::atomic<bool> complete_{false}, finished_{false}, used_{false};
    static void await_finished();
};

}  // namespace weft::internal
