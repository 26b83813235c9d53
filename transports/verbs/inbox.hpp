// inbox.hpp: news from other threads for the thread that drives an endpoint.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "src/base/fd.hpp"

namespace weft::internal::verbs {

struct LinkTable;

// Thread-safe, except run().
class Inbox {
  public:
    using News = std::function<void(LinkTable&)>;
    explicit Inbox(Fd event) : event_(std::move(event)) {}

    void post(News news) {
        {
            std::lock_guard lock(mutex_);
            news_.push_back(std::move(news));
        }
        any_.store(true, std::memory_order_release);  // pairs with any()
        ring_event(event_);
    }
    bool any() const { return any_.load(std::memory_order_acquire); }
    // In the order of posting.
    void run(LinkTable& table) {
        std::vector<News> all;
        any_.store(false, std::memory_order_relaxed);
        drain_event(event_);
        {
            std::lock_guard lock(mutex_);
            all.swap(news_);
        }
        for (const News& each : all) each(table);
    }
    // Readable while there are news.
    int descriptor() const { return event_.number(); }

  private:
    Fd event_;
    std::atomic<bool> any_{false};
    std::mutex mutex_;
    std::vector<News> news_;
};

}  // namespace weft::internal::verbs
