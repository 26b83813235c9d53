// events.hpp: the log of asynchronous events of the devices: links that go down or up, changed GIDs, failed queues.
#pragma once
#include <memory>
#include <vector>

#include "src/control/service.hpp"
#include "transports/verbs/devices.hpp"

namespace weft::internal::verbs {

// The endpoints of a process share it. It reads the events on the service thread while there is an endpoint.
class EventLog {
  public:
    static Result<std::shared_ptr<EventLog>> of_process(const Devices& devices);
    EventLog(std::shared_ptr<Service> service, const Devices& devices);
    EventLog(const EventLog&) = delete;
    ~EventLog();

  private:
    std::shared_ptr<Service> service_;
    std::vector<Fd> events_;  // duplicates: a log that is just ending may still watch the same device
};

}  // namespace weft::internal::verbs
