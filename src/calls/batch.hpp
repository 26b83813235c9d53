// batch.hpp: executes calls together on one thread, the caller's or a stream's.
// Calls run in order on each communicator and take turns across communicators, so one thread can drive several ranks.
// Point-to-point messages run beside the calls, in no order.
#pragma once
#include <vector>

#include "src/calls/comm_queue.hpp"

namespace weft::internal {

// Thread-bound to the thread that runs it.
class Batch {
  public:
    explicit Batch(std::vector<CommQueue> queues) : queues_(std::move(queues)) {}
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch();
    Status run();

  private:
    void keep(CommQueue& queue, std::span<const size_t> numbers, Status& failure);
    void come_in();
    void join();
    void give_up(CommQueue& queue, std::span<const size_t> numbers, Status failure);
    bool exchange(CommQueue& queue);
    bool advance(CommQueue& queue);
    bool is_ahead(const CommQueue& queue) const;
    void let_go();
    Status pause(CommQueue& queue);
    std::vector<CallStatuses::Refused> refused_beside(const CommQueue& queue) const;
    Status look_for_refused(const CommQueue& queue) const;
    Status name_refused(const CommQueue& queue, Status failure) const;

    std::vector<CommQueue> queues_;
    std::vector<CallStatuses::Refused> refused_;  // when they were to begin, by communicators that live on
    Status first_;
};

}  // namespace weft::internal
