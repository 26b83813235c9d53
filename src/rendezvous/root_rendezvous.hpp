// root_rendezvous.hpp: the root, at which the hosts of a communicator check in. It runs on the service thread of the
// process that made the unique id, or of rank 0's process if all ranks derived the id. When all ranks have checked in
// it sends the rank table to every host and is not needed any more. It sends the first failure to all hosts, also to
// those that come later.
#pragma once
#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>

#include "src/control/check_in.hpp"
#include "src/control/control_connection.hpp"

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

  private:
    struct Client {
        std::unique_ptr<ControlConnection> link;
        HostEntry entry;
        bool checked_in = false;
    };
    void welcome(net::AcceptedConnection accepted);
    void on_frame(Client& client, uint32_t kind, ByteReader& content);
    void on_end(Client& client, const Status& why);
    Status add_ranks(Client& client, const std::vector<RankEntry>& members, ByteReader& content);
    void finish();
    void refuse(Client& client, const Status& why);
    void fail_all(Status failure);
    void tell_waiting();
    std::string missing() const;

    std::shared_ptr<AcceptDispatcher> dispatcher_;
    net::Identity identity_;
    std::function<void()> on_use_;
    std::list<Client> clients_;
    int ranks_ = 0;           // as the first host was given; 0: no host has checked in yet
    std::string first_text_;  // that host
    std::map<int, Client*> by_rank_;
    AgreedOptions agreed_{};
    AgreedTexts texts_;  // of rank 0
    Status failure_;
    uint64_t timer_ = 0;
    std::atomic<bool> complete_{false}, finished_{false}, used_{false};
    static void await_finished();
};

}  // namespace weft::internal
