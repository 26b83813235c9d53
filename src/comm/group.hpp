// group.hpp: calls collected between weftGroupStart and weftGroupEnd on one thread, and how they are driven together:
// in order on each communicator, in turn across communicators, so that one thread can be several ranks; all messages
// between two ranks each beside them, in no order. Thread-local.
#pragma once
#include <vector>

#include "src/comm/joining.hpp"

namespace weft {

class Group {
  public:
    static Group& current();
    ~Group();

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
        std::unique_ptr<Portions> portions;  // the call's
    };
    static Status drive(std::vector<Queued> calls);

    int depth_ = 0;
    std::vector<Queued> calls_;
    std::vector<Joining> joinings_;
};

}  // namespace weft
