// check_in_relay.hpp: a leader's connections to the leaders below it in the CheckInTree. It passes their reports up and
// the outcome of the rendezvous down.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "src/control/check_in.hpp"
#include "src/control/control_connection.hpp"

namespace weft::internal {

// Owned by CheckInClient, thread-bound to the service thread.
class CheckInRelay {
  public:
    using Up = std::function<void(CheckInFrame kind, const ByteWriter& content)>;
    // `up` sends a frame to this leader's parent. `traffic` outlives the relay.
    CheckInRelay(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity, Up up,
                 CheckInTraffic& traffic);

    // From now on takes the leaders below this place.
    void open(int place);
    void end();
    // The missing ranks.
    void tell(const std::string& obstacle);
    // Final, for later leaders too.
    void refuse(const Failure& failure);
    // Final: the content of CheckInFrame::rank_table. All leaders below are attached by then.
    void finish(const ByteWriter& rank_table);
    // No leader below needs this one any more.
    bool idle() const { return children_.empty(); }
    int64_t told_us() const { return told_us_; }

  private:
    struct Child {
        std::unique_ptr<ControlConnection> link;
        bool attached = false;  // before, the leader may still choose to wait at the root
    };
    void welcome(net::AcceptedConnection accepted);
    void on_frame(int place, CheckInFrame kind, ByteReader& content);
    void on_end(int place, const Status& why);
    void send(Child& child, CheckInFrame kind, const ByteWriter& content = {});
    void send_last(Child& child, CheckInFrame kind, const ByteWriter& content);
    void send_refusal(Child& child);
    void add_reports(const ByteWriter& reports);
    void send_reports();

    std::shared_ptr<AcceptDispatcher> dispatcher_;
    net::Identity identity_;
    Up up_;
    CheckInTraffic* traffic_;
    int place_ = 0;  // 0: not open
    std::map<int, Child> children_;
    std::optional<Failure> failure_;
    bool settled_ = false;  // the outcome was sent
    ByteWriter reports_;    // of joined ranks, to be sent together
    int64_t reported_us_ = 0, told_us_ = 0;
    uint64_t timer_ = 0;  // for reports_; 0: it is not set
};

}  // namespace weft::internal
