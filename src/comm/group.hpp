// group.hpp: calls collected between weftGroupStart and weftGroupEnd on one thread. Thread-local.
#pragma once
#include <vector>

#include "src/comm/batch.hpp"

namespace weft {

class Group {
  public:
    static Group& current();
    ~Group();

    bool open() const { return depth_ > 0; }
    void start() { ++depth_; }
    // Carries out what was collected, if it is the outermost.
    Status end();
    // The same, but hands out what was collected; fails, with this group ended all the same, if it is not the outermost
    // or cannot be carried out many times.
    Result<std::vector<QueuedCall>> end_prepared();
    // Refuses a call that cannot go with the others on its communicator.
    Status check(const QueuedCall& queued) const;
    Status add(QueuedCall queued);
    Status add(weftComm* handle, const Communicator::Call& call) { return add(QueuedCall(handle, call)); }
    // What `handle` has been asked for: now, or in its turn when an open group ends.
    Status add_or_run(weftComm* handle, std::shared_ptr<Undertaking> undertaking);
    void add(Joining joining) { joinings_.push_back(std::move(joining)); }
    bool holds(const weftComm* handle) const;

  private:
    int depth_ = 0;
    size_t usual_ = 0;  // calls of the last group
    std::vector<QueuedCall> calls_;
    std::vector<Joining> joinings_;
};

}  // namespace weft
