// endpoint.hpp: the resources of one rank of a communicator: its door, its completion queues and its links.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "src/base/wakeups.hpp"
#include "transports/verbs/door.hpp"
#include "transports/verbs/inbox.hpp"
#include "transports/verbs/link_table.hpp"

namespace weft::internal::verbs {

// The ports that links of this rank may use, the nearest first. `gpu`: the bus id of its device; empty: its cores count.
// As Devices::ports().
Result<std::vector<Port>> ports_of_rank(const Devices& devices, const Settings& settings, const std::string& gpu,
                                        int rank);

// One for each communicator, rank and driving thread. The ends of its connections share it, and it ends with the last
// one. The functions of the first group are thread-safe. The second group, from poll() on, belongs to the driving thread.
class Endpoint {
  public:
    static Result<std::shared_ptr<Endpoint>> of(const ConnectionOptions& options);
    Endpoint(const Devices& devices, const Settings& settings, std::shared_ptr<Inbox> inbox,
             std::shared_ptr<Door> door);
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;
    // Waits up to a second for messages that are on their way.
    ~Endpoint();

    const Devices& devices() const { return devices_; }
    // Announces a receiver, and returns its address.
    ListenAddress listen(const ConnectionOptions& options, std::shared_ptr<Incoming> incoming);
    void connect(const ListenAddress& address, std::shared_ptr<Outgoing> outgoing);
    void close(std::shared_ptr<Outgoing> outgoing);
    void close(std::shared_ptr<Incoming> incoming);

    // Takes completions and news. True: a rank that waits may go on.
    bool poll();
    // Prepares a sleep: polls after it has armed. `wakeups` gets the descriptors that end the sleep.
    void add_wakeups(Wakeups& wakeups);
    // The door learns of links and lanes that have failed, and tells the peers.
    void tell_failures();

  private:
    bool take_news();
    bool take(const abi::Completion& completion);
    void step_links(bool quiet);
    void drain();

    const uint64_t process_;
    const Devices& devices_;
    const Settings settings_;
    std::shared_ptr<Inbox> inbox_;
    std::shared_ptr<Door> door_;
    std::atomic<uint32_t> next_number_{0};

    LinkTable table_;
    std::vector<bool> told_;  // by link: the door knows that it failed
    bool recovers_ = false;   // a link has lost a lane
};

}  // namespace weft::internal::verbs
