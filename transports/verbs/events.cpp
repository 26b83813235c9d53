#include "transports/verbs/events.hpp"

#include <sys/epoll.h>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal::verbs {

namespace {

// Events that users need not act on.
bool is_quiet(int type) {
    return type == event::communication_established || type == event::sq_drained || type == event::port_active ||
           type == event::speed_change;
}

}  // namespace

Result<std::shared_ptr<EventLog>> EventLog::of_process(const Devices& devices) {
    return shared_by_process<EventLog>([&]() -> Result<std::shared_ptr<EventLog>> {
        auto service = Service::of_process();
        if (!service) return service.take_status();
        return std::make_shared<EventLog>(std::move(*service), devices);
    });
}

EventLog::EventLog(std::shared_ptr<Service> service, const Devices& devices) : service_(std::move(service)) {
    for (const Device& device : devices.all()) events_.push_back(Fd::duplicate(device.context->event_fd()));
    service_->run([&] {
        for (size_t i = 0; i < events_.size(); ++i) {
            Context& context = *devices.all()[i].context;
            const Status watched = service_->watch(events_[i].number(), EPOLLIN,
                                                   [this, i, &context](uint32_t) { take_events(i, context); });
            if (!watched) WEFT_LOG(warn, net, "{}", watched.text());
        }
    });
}

void EventLog::take_events(size_t device, Context& context) {
    while (const auto happened = context.next_event()) {
        if (is_quiet(happened->type))
            WEFT_LOG(info, net, "{}", happened->text());
        else
            WEFT_LOG(warn, net, "{}", happened->text());
        for (const auto& [owner, on_event] : watchers_) on_event(device, *happened);
    }
}

void EventLog::watch(const void* owner, OnEvent on_event) {
    if (on_event)
        watchers_[owner] = std::move(on_event);
    else
        watchers_.erase(owner);
}

EventLog::~EventLog() {
    service_->run([this] {
        for (const Fd& event : events_) service_->forget(event.number());
    });
}

}  // namespace weft::internal::verbs
