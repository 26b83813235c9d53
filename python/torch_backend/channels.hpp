// channels.hpp: messages with tags between two ranks. Each direction of a pair of ranks has a communicator of its own, so that
// sends and receives go on side by side, in any order on the two ranks. Tags are matched as MPI matches them.
#pragma once
#include <atomic>
#include <deque>

#include "communicator.hpp"
#include "job_queue.hpp"

namespace weft_torch {

// The direction from one rank to another; makes the communicator at the first message. One thread at a time uses it, except
// for is_made(), error(), peer_has_left() and abort().
class Connection {
  public:
    Connection(c10::intrusive_ptr<c10d::Store> store, int source, int destination, bool sends, Settings settings);
    Connection(const Connection&) = delete;
    ~Connection();
    // The communicator. The first call waits until the peer sends or receives, too.
    std::shared_ptr<Communicator> get(std::chrono::milliseconds timeout);
    // Whether the communicator was made.
    bool is_made();
    weftResult_t error();
    bool has_failed() { return error() != weftSuccess; }
    // Whether its failure is that the peer left before a message of this rank was complete.
    bool peer_has_left();
    int source() const { return source_; }
    int destination() const { return destination_; }
    bool sends() const { return sends_; }
    void abort();
    // Ends it here. Returns a failure that no call has reported; null: none.
    std::exception_ptr leave();

  private:
    c10::intrusive_ptr<c10d::Store> store_;
    const int source_, destination_;
    const bool sends_;
    Settings settings_;
    std::atomic<bool> aborted_{false};
    std::mutex mutex_;  // of made_, for abort()
    std::shared_ptr<Communicator> made_;
};

// Messages to one rank, in order. Thread-safe.
class Sender {
  public:
    explicit Sender(std::unique_ptr<Connection> connection);
    ~Sender();
    const std::shared_ptr<JobQueue>& queue() const { return queue_; }
    void send(const at::Tensor& tensor, int tag, std::chrono::milliseconds timeout);  // a job of queue()
    bool has_failed() { return connection_->has_failed(); }
    void abort();

  private:
    std::unique_ptr<Connection> connection_;
    std::shared_ptr<JobQueue> queue_ = std::make_shared<JobQueue>();
};

// A receive that waits for its message. Several receivers share one that accepts any source; the first message takes it.
struct Receive {
    HostWorkPtr work;
    at::Tensor tensor;
    int tag;
    std::chrono::milliseconds timeout;
    std::atomic<bool> taken{false};
    std::atomic<int> sources{1};  // receivers that may still get it
    bool any_source = false;
};

// Messages from one rank. Messages that no receive waits for yet are kept. Thread-safe.
class Receiver final : public Driver {
  public:
    // `all`: progress of all receivers of the backend.
    Receiver(std::unique_ptr<Connection> connection, std::shared_ptr<Progress> all)
        : connection_(std::move(connection)), all_(std::move(all)) {}
    void add(const std::shared_ptr<Receive>& receive);
    // A sender that left has sent all it had to send: no failure of the group.
    bool has_failed() { return connection_->has_failed() && !connection_->peer_has_left(); }
    void abort();

  protected:
    bool has_work() const override;
    // A receive of any source that another receiver took leaves this one waiting for a message, with nothing to do.
    bool is_pending() const override { return delivers_ || has_work(); }
    HostWorkPtr step(std::unique_lock<std::mutex>& lock) override;
    std::vector<HostWorkPtr> take_waiting() override;

  private:
    struct Kept {
        int tag;
        at::Tensor bytes;
    };
    // The first receive with this tag, taken and removed; null: none. The caller holds the lock.
    std::shared_ptr<Receive> take(int tag);
    // Fails a receive, or tells one of any source that this source is gone. The caller holds the lock.
    HostWorkPtr fail_next();

    std::unique_ptr<Connection> connection_;
    const std::shared_ptr<Progress> all_;
    std::deque<std::shared_ptr<Receive>> waiting_;
    std::deque<Kept> kept_;
    std::exception_ptr broken_;
    bool delivers_ = false;  // a message is on its way to a receive
    bool ended_ = false;     // broken_ since the sender has left
};

}  // namespace weft_torch
