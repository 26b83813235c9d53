// root_rendezvous.hpp: where the hosts of a communicator check in. It runs on the service thread of the process that made the
// unique id (or, of an id that all derived, of rank 0's process), collects who is where, and when all ranks have come
// tells every host of all; from then on it is not needed. The first failure is told to all who have come and will come.
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
    // Thread-safe. Open as long as it lives. `on_use`: on the service thread, when the first host comes.
    RootRendezvous(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity,
                   std::function<void()> on_use = {});
    ~RootRendezvous();
    // All hosts that have come know the outcome.
    bool finished() const { return finished_.load(std::memory_order_acquire); }

    // Keeps a root open until it has finished: for who makes an id and cannot wait. At the end of the process hosts
    // that are slow to take the rank table are waited for, for a moment. Thread-safe.
    static void keep(std::unique_ptr<RootRendezvous> root, const net::IdName& name);
    // Closes the root of this id, if it was opened here and nobody is checked in at it: all ranks met without.
    static void release(const net::IdName& name);
    // Closes those that have finished since.
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
    int ranks_ = 0;           // 0: nobody has come yet
    std::string first_text_;  // the host that came first, whose number counts
    std::map<int, Client*> by_rank_;
    AgreedOptions agreed_{};
    AgreedTexts texts_;  // of rank 0
    Status failure_;
    uint64_t timer_ = 0;
    std::atomic<bool> complete_{false}, finished_{false}, used_{false};
    static void await_finished();
};

}  // namespace weft::internal
