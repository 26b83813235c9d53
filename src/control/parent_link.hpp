// parent_link.hpp: a leader's connection to its parent in the CheckInTree, from the first attempt on. The parent counts the
// leader from the frame `attach` on, and this end does not give up from then on.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "src/control/check_in.hpp"
#include "src/control/control_connection.hpp"

namespace weft::internal {

// Owned by CheckInClient, thread-bound to the service thread.
class ParentLink {
  public:
    // All may destroy the link.
    struct Handlers {
        std::function<void(CheckInFrame kind, ByteReader& content)> on_frame;  // of the parent, after `taken`
        std::function<void()> on_attached;
        std::function<void(const std::string& why)> on_unreachable;  // before `attach`, final
        std::function<void(const Status& why)> on_end;
    };
    ParentLink(Service& service, const net::Identity& identity, const Placement& placement, CheckInTraffic& traffic,
               Handlers handlers);
    ~ParentLink();
    // Null until the parent has taken this leader.
    ControlConnection* connection() const { return attached_ ? link_.get() : nullptr; }
    void part();

  private:
    void attach(Fd socket);
    void give_up(const std::string& why);
    void on_frame(CheckInFrame kind, ByteReader& content);

    Service* service_;
    CheckInTraffic* traffic_;
    Handlers handlers_;
    std::unique_ptr<AsyncConnect> connect_;
    std::unique_ptr<ControlConnection> link_;
    bool attached_ = false;
    uint64_t timer_ = 0;
};

}  // namespace weft::internal
