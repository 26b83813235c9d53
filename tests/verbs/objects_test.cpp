// The driver's classes over the fake libibverbs: their facts and errors. A failure leaves no object.
#include <fcntl.h>
#include <unistd.h>

#include "src/base/fd.hpp"
#include "tests/catch.hpp"
#include "tests/verbs/limited_pinning.hpp"
#include "tests/verbs/side.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::verbs;

namespace {

const FakeVerbs fake(FAKE_IBVERBS_LIBRARY);

Functions functions() { return taken(load_transport_functions(FAKE_IBVERBS_LIBRARY)); }
std::unique_ptr<Context> opened(const char* name = "fake0") {
    return taken(taken(DeviceList::read(functions())).open(name));
}

bool says(const Status& status, const char* part) { return status.sentence().find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a library that is missing, turned off, or another one, is an error", "[verbs]") {
    CHECK(load_transport_functions("none").status().id() == error::driver_disabled);
    CHECK(load_transport_functions("/nowhere.so").status().id() == error::driver_missing);
    // Topology's fake has no queue pairs.
    const Status old = load_transport_functions(FAKE_VERBS_LIBRARY).take_status();
    CHECK(old.id() == error::driver_missing);
    CHECK(says(old, "libibverbs lacks ibv_"));
}

TEST_CASE("memory is protected against fork only where the kernel does not do it", "[verbs]") {
    fake.run("fail ibv_fork_init 1 22");
    CHECK(load_transport_functions(FAKE_IBVERBS_LIBRARY).ok());  // not called
    fake.run("fork 0");
    const Status status = load_transport_functions(FAKE_IBVERBS_LIBRARY).take_status();
    CHECK(status.id() == error::verbs_call);
    CHECK(says(status, "IBV_FORK_SAFE"));
    CHECK(load_transport_functions(FAKE_IBVERBS_LIBRARY).ok());
    fake.run("fork 2");
}

TEST_CASE("a device tells its limits, ports, GIDs and partition keys", "[verbs]") {
    const auto devices = taken(DeviceList::read(functions()));
    CHECK(devices.names() == std::vector<std::string>{"fake0", "fake1"});
    CHECK(devices.open("fake7").status().id() == error::verbs_device);
    const auto context = taken(devices.open("fake1"));
    CHECK(context->facts().ports == 1);
    CHECK(context->facts().limits.sges == 8);
    CHECK(taken(context->port(1)).state == 4);
    CHECK(context->port(2).status().id() == error::verbs_device);
    fake.run("gid fake1 9 0000:0000:0000:0000:0000:ffff:c0a8:0001 2 0");
    const auto gids = taken(context->gids(1));
    REQUIRE(gids.size() == 5);
    CHECK(gids[3].address() == "10.77.1.1");
    CHECK(gids[3].interface.empty());  // this machine does not have the address
    CHECK(gids[4].index == 9);         // after a hole
    CHECK(gids[4].interface.empty());
    // An interface of the address, whatever number the device tells: it may be of another network namespace.
    fake.run("gid fake1 9 0000:0000:0000:0000:0000:ffff:7f00:0001 2 77");
    const PortGid loopback = taken(context->gids(1))[4];
    CHECK(loopback.interface == "lo");
    CHECK(loopback.prefix_bits == 8);
    CHECK(!loopback.interface_down);
    fake.run("pkey fake1 0 7fff; pkey fake1 2 8001");
    CHECK(taken(context->pkey_index(1, 0x8001)) == 2);
    CHECK(taken(context->pkey_index(1, 0x0001)) == 2);
    CHECK(context->default_pkey_index(1) == 2);  // the first full member
    const Status missing = context->pkey_index(1, 0x8123).take_status();
    CHECK(missing.id() == error::option_value);
    CHECK(says(missing, "it has 0x7fff, 0x8001"));
    CHECK((fcntl(context->event_fd(), F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("a memory limit is told with the bytes, the limit and the remedy", "[verbs]") {
    {
        const auto context = opened();
        const auto domain = taken(ProtectionDomain::make(*context));
        std::vector<std::byte> memory(100'000);
        fake.run("memlock 65536");
        Status status;
        {
            const LimitedPinning limited;
            status = MemoryRegion::host(*domain, memory.data(), memory.size(), all_access).take_status();
        }
        fake.run("memlock 1000000000");
        CHECK(status.id() == error::verbs_memlock);
        CHECK(says(status, "fake0 refuses to register 100000 bytes at 0x"));
        CHECK(says(status, "RLIMIT_MEMLOCK of this process is "));
        CHECK(says(status, "ulimit -l unlimited"));
        const auto small = MemoryRegion::host(*domain, memory.data(), 4'096, all_access);
        CHECK(small.ok());
        CHECK(small->lkey() != small->rkey());
        CHECK(MemoryRegion::host(*domain, memory.data(), 4'096, all_access | access::relaxed_ordering).ok());
        CHECK(MemoryRegion::host(*domain, memory.data(), 4'096, access::remote_write).status().id() ==
              error::verbs_call);
    }
    CHECK(fake.objects() == 0);
}

TEST_CASE("device memory is registered by dma-buf, where the device can", "[verbs]") {
    const auto context = opened();
    const auto domain = taken(ProtectionDomain::make(*context));
    CHECK(domain->registers_dma_buf());
    alignas(4'096) static std::byte memory[4'096];
    const Fd file = Fd::memory("dma-buf", 0);
    REQUIRE(ftruncate(file.number(), sizeof memory) == 0);
    const DmaBuf buffer{.fd = file.number(), .offset = 0};
    CHECK(MemoryRegion::dma_buf(*domain, buffer, sizeof memory, uintptr_t(memory), all_access).ok());
    CHECK(!MemoryRegion::dma_buf(*domain, {.fd = buffer.fd, .offset = 8}, sizeof memory, uintptr_t(memory), all_access)
               .ok());
    fake.run("dma_buf 95");
    CHECK(!domain->registers_dma_buf());
    const Status status =
        MemoryRegion::dma_buf(*domain, buffer, sizeof memory, uintptr_t(memory), all_access).take_status();
    CHECK(says(status, "device memory"));
    CHECK(says(status, "not supported"));
    fake.run("dma_buf 9");
}

TEST_CASE("inline data is halved until the device agrees", "[verbs]") {
    {
        fake.run("max_inline 64");
        const Side side(FAKE_IBVERBS_LIBRARY, "fake0");
        CHECK(side.pair->inline_bytes() == 55);
        fake.run("max_inline 0");
        CHECK(Side(FAKE_IBVERBS_LIBRARY, "fake0").pair->inline_bytes() == 0);
        fake.run("max_inline 512");
    }
    CHECK(fake.objects() == 0);
}

TEST_CASE("limits of queue pairs and queues are told", "[verbs]") {
    {
        const Side side(FAKE_IBVERBS_LIBRARY, "fake0");
        const auto made = [&](const QueuePairOptions& options) {
            return QueuePair::make(*side.domain, *side.queue, *side.queue, options).take_status();
        };
        CHECK(says(made({.send_requests = 10'000}), "queues of 8192 requests at most; 10000 are needed"));
        CHECK(says(made({.send_sges = 9}), "8 pieces at most; 9 are needed"));
        CHECK(says(CompletionQueue::make(*side.context, 1 << 20, false).status(), "65536 entries at most"));
        fake.run("max_qp 1");
        Status full;
        {
            const LimitedPinning limited;
            full = made({});
        }
        rlimit limit{};
        getrlimit(RLIMIT_MEMLOCK, &limit);
        const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
        const bool is_unlimited = setrlimit(RLIMIT_MEMLOCK, &unlimited) == 0;
        const Status out = made({});
        setrlimit(RLIMIT_MEMLOCK, &limit);
        fake.run("max_qp 65536");
        CHECK(full.id() == error::verbs_memlock);  // ENOMEM: the kernel does not tell which
        CHECK(says(full, "fake0 refuses a queue pair of 256 and 1024 requests"));
        if (is_unlimited) {
            CHECK(out.id() == error::verbs_call);
            CHECK(says(out, "no limit of this process forbids it"));
        }
    }
    CHECK(fake.objects() == 0);
}

TEST_CASE("a failure of each call is an error, and leaves nothing", "[verbs]") {
    for (const char* function :
         {"ibv_get_device_list", "ibv_open_device", "ibv_query_device", "ibv_alloc_pd", "ibv_create_comp_channel",
          "ibv_create_cq", "ibv_reg_mr", "ibv_create_qp", "ibv_query_port", "ibv_modify_qp"}) {
        INFO(function);
        fake.run(std::string("fail ") + function + " 1 5");
        std::string error;
        try {
            Side one(FAKE_IBVERBS_LIBRARY, "fake0", 4'096, {}, true), other(FAKE_IBVERBS_LIBRARY, "fake1");
            connect(one, other);
        } catch (const std::exception& exception) {
            error = exception.what();
        }
        CHECK(error.find("Input/output error") != std::string::npos);
        CHECK(error.find("[verbs.") != std::string::npos);
        CHECK(fake.objects() == 0);
    }
}

TEST_CASE("each error of the path has its hint", "[verbs]") {
    Side one(FAKE_IBVERBS_LIBRARY, "fake0"), other(FAKE_IBVERBS_LIBRARY, "fake1");
    const SideAddress own = one.address(), peer = other.address();
    struct Row {
        int error;
        const char* hint;
    };
    for (const auto& [error, hint] :
         {Row{ETIMEDOUT, "nothing answers"}, Row{ENETUNREACH, "no route"}, Row{EHOSTUNREACH, "no route"},
          Row{EINVAL, "GIDs do not fit"}, Row{ENODEV, "network device of the GID is gone"}}) {
        done(one.pair->init(1, 0, all_access));
        fake.run(fmt::format("fail ibv_modify_qp 1 {}", error));
        const Status status = one.pair->receive_from(own.end, peer.end, quick);
        CHECK(status.id() == error::verbs_path);
        CHECK(says(status, hint));
        CHECK(says(status, "GID 3 10.77.1.1"));
    }
    // The fake itself: IPv4 with link-local, and an index that is not there.
    SideAddress wrong = peer;
    wrong.end.gid = taken(other.context->gids(1))[1];
    CHECK(says(one.pair->receive_from(own.end, wrong.end, quick), "GIDs do not fit"));
    wrong = own;
    wrong.end.gid.index = 77;
    CHECK(says(one.pair->receive_from(wrong.end, peer.end, quick), "index is no longer valid"));
    CHECK(one.pair->receive_from(own.end, peer.end, quick).ok());
}

TEST_CASE("enhanced connection establishment is used where both have it, and may be missing", "[verbs]") {
    Side side(FAKE_IBVERBS_LIBRARY, "fake0");
    const auto ece = side.pair->ece();
    REQUIRE(ece.has_value());
    CHECK(side.pair->set_ece(*ece));
    fake.run("ece 95");
    CHECK(!side.pair->ece());
    CHECK(!side.pair->set_ece(*ece));
    fake.run("ece 0");
}

TEST_CASE("every asynchronous event has a sentence and is acknowledged", "[verbs]") {
    {
        Side side(FAKE_IBVERBS_LIBRARY, "fake0");
        Side other(FAKE_IBVERBS_LIBRARY, "fake1");
        connect(side, other);
        CHECK(!side.context->next_event());
        for (int type = 0; type <= event::speed_change; ++type) {
            INFO(type);
            fake.run(fmt::format("event fake0 {}", type));
            const auto happened = side.context->next_event();
            REQUIRE(happened.has_value());
            CHECK(happened->type == type);
            CHECK(happened->text().find("fake0") != std::string::npos);
            CHECK(happened->text().find("event ") == std::string::npos);
            CHECK(!side.context->next_event());
        }
        CHECK(Event{.type = 99, .device = "fake0"}.text() == "fake0: event 99");
        fake.run("port fake0 down");
        CHECK(side.context->next_event()->text() == "port 1 of fake0: the link is down");
        CHECK(taken(side.context->port(1)).state == 1);
        fake.run("port fake0 up");
        CHECK(side.context->next_event()->type == event::port_active);
        // An event that nobody takes goes with its object. An unacknowledged one would abort the fake.
        fake.run("event fake0 1");
    }
    CHECK(fake.objects() == 0);
}
