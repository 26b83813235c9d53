// group.hpp: calls collected between weftGroupStart and weftGroupEnd on one thread, and how they are driven together:
// in order on each communicator, in turn across communicators, so that one thread can be several ranks; all messages
// between two ranks each beside them, in no order. Thread-local.
#pragma once
#include <vector>

#include "src/comm/splitting.hpp"

namespace weft {

class Group {
  public:
    static Group& current();
    ~Group();

    // A split or shrink that `handle` has been asked for: now, or in its turn when an open group ends.
    Status add_or_run(weftComm* handle, std::shared_ptr<Splitting> splitting);
    bool open() const { return depth_ > 0; }
    void start() { ++depth_; }
    Status end();
    void add(weftComm* handle, const Communicator::Call& call);
    void add(Joining joining) { joinings_.push_back(std::move(joining)); }
    bool holds(const weftComm* handle) const;

  private:
    struct Queued {
        weftComm* handle;
        Communicator::Call call;
        std::shared_ptr<Splitting> splitting = nullptr;  // null: a call
        std::unique_ptr<Portions> portions = nullptr;    // the call's

        Status begin() const { return splitting ? splitting->begin() : communicator().begin(call); }
        Progress advance() const { return splitting ? splitting->advance() : communicator().advance(); }
        Status pause(bool may_sleep) const {
            return splitting ? splitting->pause(may_sleep) : communicator().pause(may_sleep);
        }
        Status take_failure() const { return splitting ? splitting->take_failure() : communicator().take_failure(); }
        void end() const {
            if (!splitting) (void)communicator().end();
        }
        Communicator& communicator() const { return *handle->communicator; }
    };
    static Status drive(std::vector<Queued> calls);

    int depth_ = 0;
    std::vector<Queued> calls_;
    std::vector<Joining> joinings_;
};

}  // namespace weft
