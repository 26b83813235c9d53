// events.hpp: asynchronous events of the devices: links that go down or up, changed GIDs, failed queues. They are logged,
// and passed to those who watch.
#pragma once
#include <functional>
#include <map>
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

    // Calls back for each event, with the device's place in Devices. An empty function ends it. The callback must not
    // call watch(). On the service thread.
    using OnEvent = std::function<void(size_t device, const Event& event)>;
    void watch(const void* owner, OnEvent on_event);

  private:
    void take_events(size_t device, Context& context);

    std::map<const void*, OnEvent> watchers_;
    std::shared_ptr<Service> service_;
    std::vector<Fd> events_;  // duplicates: a log that is just ending may still watch the same device
};

}  // namespace weft::internal::verbs
