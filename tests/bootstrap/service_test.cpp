// service_test.cpp: the service thread's tasks, their failures and its end; the orderly end of a link.
#include <dirent.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <set>

#include "src/control/control_connection.hpp"
#include "tests/error.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

std::shared_ptr<Service> service_of_process() {
    auto made = Service::of_process();
    if (!made) FAIL(made.status().sentence());
    return *made;
}

int threads() {
    int count = -2;  // . and ..
    DIR* folder = opendir("/proc/self/task");
    while (readdir(folder)) ++count;
    closedir(folder);
    return count;
}

std::set<int> epoll_descriptors() {
    std::set<int> numbers;
    DIR* folder = opendir("/proc/self/fd");
    while (const dirent* entry = readdir(folder)) {
        char file[64] = {};
        const std::string name = std::string("/proc/self/fd/") + entry->d_name;
        if (readlink(name.c_str(), file, sizeof file - 1) > 0 && std::string(file) == "anon_inode:[eventpoll]")
            numbers.insert(atoi(entry->d_name));
    }
    closedir(folder);
    return numbers;
}

}  // namespace

TEST_CASE("an exception that leaves a task reaches all users of the thread, which goes on", "[service]") {
    const auto service = service_of_process();
    ErrorId first{}, second{};
    service->run([&] {
        service->on_failure(&first, [&](ErrorId error, const char*) { first = error; });
        service->on_failure(&second, [&](ErrorId error, const char*) {
            second = error;
            throw std::bad_alloc();
        });
    });
    service->post([] { throw std::bad_alloc(); });
    service->run([] {});
    CHECK(first == error::memory_exhausted);
    CHECK(second == error::memory_exhausted);
    service->run([&] {
        service->on_failure(&second, {});
        service->after(1, [] { throw std::runtime_error("of a timer"); });
    });
    CHECK(eventually([&] {
        ErrorId now{};
        service->run([&] { now = first; });
        return now == error::internal_exception;
    }));
    CHECK(second == error::memory_exhausted);
    service->run([&] { service->on_failure(&first, {}); });
}

TEST_CASE("an event descriptor of the program with the loop's number is detected", "[service]") {
    REQUIRE(eventually([] { return epoll_descriptors().empty(); }));
    auto service = service_of_process();
    const std::set<int> loops = epoll_descriptors();
    REQUIRE(loops.size() == 1);
    std::atomic<bool> lost{false};
    service->run([&] {
        service->on_failure(&lost, [&](ErrorId error, const char*) { lost = error == error::usage_closed_descriptor; });
    });
    Fd foreign(eventfd(0, EFD_CLOEXEC));
    REQUIRE(dup2(foreign.number(), *loops.begin()) >= 0);
    CHECK(eventually([&] { return lost.load(); }));
    bool ran = false;
    service->run([&] { ran = true; });
    CHECK(ran);
    service->run([&] { service->on_failure(&lost, {}); });
    service.reset();  // with its descriptors, so that a later case gets a loop of its own
}

TEST_CASE("a caller that waits for a task gets the exception that left it", "[service]") {
    const auto service = service_of_process();
    CHECK_THROWS_AS(service->run([] { throw std::bad_alloc(); }), std::bad_alloc);
    bool ran = false;
    service->run([&] { ran = true; });
    CHECK(ran);
}

TEST_CASE("a task may give up the thread's last owner", "[service]") {
    const int before = threads();
    {
        auto service = service_of_process();
        Service* thread = service.get();
        thread->post([service = std::move(service)]() mutable { service.reset(); });
    }
    CHECK(eventually([&] { return threads() <= before; }));  // fewer, if one of an earlier case was still there
    bool ran = false;
    service_of_process()->run([&] { ran = true; });
    CHECK(ran);
}

TEST_CASE("a link that ends in order loses nothing behind a full socket", "[service]") {
    const auto service = service_of_process();
    auto ends = socket_pair();
    constexpr size_t frames = 64, frame_bytes = 100'000;
    std::unique_ptr<ControlConnection> link;
    std::atomic<int> ended = 0, heard = 0;
    service->run([&] {
        link = std::make_unique<ControlConnection>(
            *service, std::move(ends.first), [&](uint32_t, ByteReader&) { ++heard; },
            [&](const Status& why) { ended = why ? 1 : 2; });
        ByteWriter content;
        for (size_t i = 0; i < frame_bytes; ++i) content.put(char(i));
        for (uint32_t i = 0; i < frames; ++i) link->send(i, content);
        link->finish();
    });
    net::FrameStream other(std::move(ends.second));
    // A later frame is ignored, and does not break the transfer in progress.
    REQUIRE(other.queue(1, "late", 4));
    uint32_t next = 0;
    REQUIRE(eventually([&] {
        (void)other.flush();
        for (;;) {
            auto frame = other.receive();
            if (!frame) return true;
            if (!*frame) return false;
            CHECK((*frame)->kind == next++);
            CHECK((*frame)->bytes.size() == frame_bytes);
        }
    }));
    CHECK(next == frames);
    CHECK(other.ended());
    CHECK(ended == 0);
    other = {};
    CHECK(eventually([&] { return ended == 1; }));
    CHECK(heard == 0);
    service->run([&] { link.reset(); });
}

TEST_CASE("a link to a peer that never reads is ended, with an error", "[service]") {
    const auto service = service_of_process();
    auto ends = socket_pair();
    std::unique_ptr<ControlConnection> link;
    ErrorId why{};
    service->run([&] {
        link = std::make_unique<ControlConnection>(
            *service, std::move(ends.first), [](uint32_t, ByteReader&) {},
            [&](const Status& status) { why = status.id(); });
        ByteWriter content;
        content.append(std::string(1 << 20, 'm').data(), 1 << 20);
        for (int i = 0; i < 40; ++i) link->send(1, content);
    });
    CHECK(eventually([&] {
        ErrorId now{};
        service->run([&] { now = why; });
        return now == error::tcp_broken;
    }));
    service->run([&] { link.reset(); });
}
