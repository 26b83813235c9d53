// Launches in their order, with and without a thread, and waits for one of them.
#include "src/train/launch_queue.hpp"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "src/base/result.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;
using namespace weft::internal::train;

namespace {

// Queues of both kinds.
std::vector<std::unique_ptr<LaunchQueue>> queues() {
    std::vector<std::unique_ptr<LaunchQueue>> all;
    auto started = LaunchQueue::start();
    REQUIRE(started);
    all.push_back(std::move(*started));
    all.push_back(LaunchQueue::at_once());
    return all;
}

// Whether a thread of this process waits.
bool sleeps(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(file, line);
    return line.find(") S ") != std::string::npos;
}

}  // namespace

TEST_CASE("launches are carried out in the order in which they were added") {
    for (const auto& queue : queues()) {
        std::vector<int> seen;
        for (int i = 0; i < 100; ++i)
            queue->add([&seen, i] {
                seen.push_back(i);
                return ok();
            });
        REQUIRE(queue->wait());
        REQUIRE(seen.size() == 100);
        for (int i = 0; i < 100; ++i) CHECK(seen[size_t(i)] == i);
    }
}

TEST_CASE("a wait for one launch does not wait for later ones") {
    auto queue = LaunchQueue::start();
    REQUIRE(queue);
    std::atomic<bool> first{false}, released{false}, last{false};
    const LaunchQueue::Ticket ticket = (*queue)->add([&] {
        first = true;
        return ok();
    });
    const LaunchQueue::Ticket held = (*queue)->add([&] {
        released.wait(false);
        return ok();
    });
    REQUIRE((*queue)->wait(ticket));
    CHECK(first);
    CHECK((*queue)->done(ticket));
    CHECK_FALSE((*queue)->done(held));
    const LaunchQueue::Ticket left = (*queue)->add([&] {
        last = true;
        return ok();
    });
    released = true;
    released.notify_all();
    REQUIRE((*queue)->wait(left));
    CHECK(last);
}

TEST_CASE("launches that a wait leaves over are carried out without a further wait") {
    auto queue = LaunchQueue::start();
    REQUIRE(queue);
    for (int i = 0; i < 200; ++i) {
        std::atomic<bool> later{false};
        const LaunchQueue::Ticket ticket = (*queue)->add([] { return ok(); });
        (*queue)->add([&] {
            later = true;
            later.notify_all();
            return ok();
        });
        REQUIRE((*queue)->wait(ticket));
        later.wait(false);
        REQUIRE((*queue)->wait());
    }
}

TEST_CASE("a waiter that carries a launch out wakes another waiter") {
    auto queue = LaunchQueue::start();
    REQUIRE(queue);
    std::atomic<bool> begun{false};
    std::atomic<pid_t> other{0};
    // No thread is woken, so the first waiter carries it out.
    const LaunchQueue::Ticket ticket = (*queue)->add_before_wait([&] {
        begun = true;
        begun.notify_all();
        other.wait(0);
        while (!sleeps(other)) usleep(200);
        return ok();
    });
    std::thread waiter([&] {
        begun.wait(false);
        other = gettid();
        other.notify_all();
        (void)(*queue)->wait(ticket);
    });
    CHECK((*queue)->wait(ticket));
    waiter.join();
}

TEST_CASE("after a failed launch the others are dropped, and every wait returns its error") {
    for (const auto& queue : queues()) {
        bool carried_out = false;
        const LaunchQueue::Ticket first = queue->add([] { return fail(error::train_hook, "it failed"); });
        const LaunchQueue::Ticket second = queue->add([&] {
            carried_out = true;
            return ok();
        });
        CHECK_FALSE(queue->wait(first));
        CHECK(queue->wait(second).id() == error::train_hook);
        CHECK(queue->wait().id() == error::train_hook);
        CHECK_FALSE(carried_out);
        CHECK(queue->done(second));
    }
}
