// accept_dispatcher_test.cpp: connections that any thread accepts reach the task that expects them on the service
// thread.
#include <atomic>

#include "src/control/control_connection.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// The process's dispatcher and a communicator that its listener admits.
struct Host {
    std::shared_ptr<AcceptDispatcher> dispatcher = [] {
        auto made = AcceptDispatcher::of_process();
        if (!made) FAIL(made.status().sentence());
        return *made;
    }();
    net::Identity identity = fresh_identity();
    std::vector<Fd> callers;

    Host() { dispatcher->listener().register_identity(identity); }
    ~Host() { dispatcher->listener().unregister_identity(identity.name); }
    // A call that the listener has let in; by this thread if the service thread does not.
    void call(uint32_t kind, uint32_t detail, uint64_t token) {
        net::OutgoingConnection made(identity, {kind, detail, token}, dispatcher->listener().addresses());
        auto socket = finish(made, &dispatcher->listener());
        if (!socket) FAIL(socket.status().sentence());
        callers.push_back(std::move(*socket));
    }
    void expect(uint32_t kind, std::optional<uint64_t> token, std::atomic<int>& arrived) {
        dispatcher->service().run([&] {
            dispatcher->expect(identity.name, kind, token,
                               [&](net::AcceptedConnection accepted) { arrived += int(accepted.purpose.detail); });
        });
    }
    void stop_expecting(uint32_t kind, std::optional<uint64_t> token) {
        dispatcher->service().run([&] { dispatcher->stop_expecting(identity.name, kind, token); });
    }
};

}  // namespace

TEST_CASE("a connection that a rank's thread accepts reaches the service thread", "[dispatcher]") {
    Host host;
    for (const uint64_t token : {1, 2, 3}) {  // not only the first
        std::atomic<int> arrived = 0;
        host.expect(net::control, token, arrived);
        // The service thread is busy, as it is for moments in any job; the rank waits for data and looks at the listener.
        std::atomic<bool> busy = false, enough = false;
        host.dispatcher->service().post([&] {
            busy = true;
            while (!enough) usleep(100);
        });
        REQUIRE(eventually([&] { return busy.load(); }));
        host.call(net::control, 7, token);
        enough = true;
        CHECK(eventually([&] { return arrived == 7; }));
        host.stop_expecting(net::control, token);
    }
}

TEST_CASE("all connections that came before their token was expected are handed over", "[dispatcher]") {
    Host host;
    std::atomic<int> others = 0, arrived = 0;
    host.expect(net::control, 1, others);
    for (const uint32_t detail : {1, 10, 100}) host.call(net::control, detail, 2);
    host.call(net::control, 5, 1);  // oldest first: with this one the dispatcher has taken the others
    REQUIRE(eventually([&] { return others == 5; }));
    host.expect(net::control, 2, arrived);
    CHECK(eventually([&] { return arrived == 111; }));
    host.stop_expecting(net::control, 1);
    host.stop_expecting(net::control, 2);
}
