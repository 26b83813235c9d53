// device_test.cpp: devices, contexts, and the answers of NVML and of the inventory.
#include "src/drivers/cuda/device.hpp"

#include <thread>

#include "src/drivers/nvml/nvml.hpp"
#include "tests/drivers/fake.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using cuda::Context;
using cuda::ContextScope;

TEST_CASE("a device's properties are its driver's", "[device]") {
    FakeDriver driver("gpus 3; sm 103; multiprocessors 148; memory_mb 16; attribute 1 102 0; attribute 2 20 3");
    CHECK(take(cuda::device_count(*driver)) == 3);
    const cuda::DeviceProperties one = take(cuda::describe_device(*driver, 0));
    CHECK(one.name == "Fake GPU 0");
    CHECK(one.bus_id == "0000:1a:00.0");
    CHECK(one.sm == 103);
    CHECK(one.multiprocessors == 148);
    CHECK(one.memory_bytes == size_t(16) << 20);
    CHECK(one.threads_per_block == 1024);
    CHECK(one.vmm);
    CHECK(one.vmm_fd);
    CHECK(!one.multicast);
    CHECK(one.ipc_events);
    CHECK(one.memory_sync_domains == 4);
    CHECK(one.uuid_text() == "GPU-f0f1f2f3-f4f5-f6f7-f8f9-f0f1f2f3f400");
    CHECK(!take(cuda::describe_device(*driver, 1)).vmm);
    CHECK(take(cuda::describe_device(*driver, 2)).compute_mode == 3);
    CHECK(contains(cuda::describe_device(*driver, 3).status().sentence(), "find device 3: CUDA_ERROR_INVALID_DEVICE"));
}

TEST_CASE("a property that an old driver does not know is absent", "[device]") {
    FakeDriver driver("version 11040");
    const cuda::DeviceProperties old = take(cuda::describe_device(*driver, 0));
    CHECK(!old.ipc_events);
    CHECK(old.memory_sync_domains == 1);
    CHECK(old.vmm);
}

TEST_CASE("peer access is known for each direction", "[device]") {
    FakeDriver driver("p2p 0 1 0");
    CHECK(!take(cuda::peer_access(*driver, 0, 1)).reachable);
    CHECK(take(cuda::peer_access(*driver, 1, 0)).reachable);
    CHECK(take(cuda::peer_access(*driver, 1, 0)).atomics);
    const Context zero = driver.context(0), one = driver.context(1);
    CHECK(contains(zero.enable_peer(one).sentence(), "device 0 reach the memory of device 1: CUDA_ERROR_PEER_ACCESS"));
    demand(one.enable_peer(zero));
    demand(one.enable_peer(zero));
}

TEST_CASE("a context is current within a scope, and the earlier one is current again after it", "[context]") {
    FakeDriver driver;
    const Context zero = driver.context(0), one = driver.context(1);
    CHECK(!take(cuda::current_device(*driver)));
    {
        ContextScope outer(zero);
        demand(outer.take_status());
        CHECK(take(cuda::current_device(*driver)) == 0);
        {
            ContextScope inner(one);
            CHECK(take(cuda::current_device(*driver)) == 1);
            // Another thread has none.
            std::optional<int> elsewhere = 5;
            std::thread([&] { elsewhere = *cuda::current_device(*driver); }).join();
            CHECK(!elsewhere);
        }
        CHECK(take(cuda::current_device(*driver)) == 0);
        const int pushes = fake::calls("cuCtxPushCurrent");
        { ContextScope again(zero); }
        CHECK(fake::calls("cuCtxPushCurrent") == pushes);
    }
    CHECK(!take(cuda::current_device(*driver)));
}

TEST_CASE("a primary context is retained as often as it has owners", "[context]") {
    FakeDriver driver;
    const auto active = [&] {
        unsigned flags = 0;
        int is = 0;
        demand(driver->check(driver->DevicePrimaryCtxGetState(0, &flags, &is), "x"));
        return is != 0;
    };
    CHECK(!active());
    {
        Context one = driver.context(0);
        Context other = driver.context(0);
        CHECK(one.handle() == other.handle());
        other = Context();
        CHECK(active());
    }
    CHECK(!active());
    CHECK(contains(Context::retain(*driver, 9).status().sentence(), "find device 9"));
}

TEST_CASE("the context of any device is one that is in use", "[context]") {
    FakeDriver driver;
    CHECK(take(Context::of_any_device(*driver)).handle() == nullptr);
    const Context one = driver.context(1);
    const Context found = take(Context::of_any_device(*driver));
    CHECK(found.handle() == one.handle());
    CHECK(found.device() == 1);
}

TEST_CASE("NVML shows links, their ends, and the NVLink domain", "[nvml]") {
    fake::reset("gpus 3; nvlink 0 0 1; nvlink 0 1 1; nvlink 0 4 switch; fabric 0 7; p2p 0 2 0");
    const nvml::Nvml* nvml = take(nvml::Nvml::open(FAKE_CUDA_LIBRARY));
    CHECK(nvml->driver_version() == "580.00.01");
    const std::vector<nvml::NvlinkState> links = nvml->links("0000:1a:00.0");
    REQUIRE(links.size() == 3);
    CHECK(links[0].remote_bus_id == "0000:1b:00.0");
    CHECK(links[0].remote == nvml::RemoteKind::gpu);
    CHECK(links[0].peer_to_peer);
    CHECK(links[2].link == 4);
    CHECK(links[2].remote == nvml::RemoteKind::nvswitch);
    CHECK(nvml->links("0000:1b:00.0").empty());
    CHECK(nvml->links("no such").empty());
    CHECK(nvml->over_nvlink("0000:1a:00.0", "0000:1b:00.0") == nvml::PeerStatus::ok);
    CHECK(nvml->over_nvlink("0000:1b:00.0", "0000:1a:00.0") == nvml::PeerStatus::not_supported);
    CHECK(nvml->reading("0000:1a:00.0", "0000:1c:00.0") == nvml::PeerStatus::not_supported);
    CHECK(nvml->writing("0000:1a:00.0", "0000:ff:00.0") == nvml::PeerStatus::unknown);
    REQUIRE(nvml->fabric("0000:1a:00.0"));
    CHECK(nvml->fabric("0000:1a:00.0")->clique == 7);
    CHECK(!nvml->fabric("0000:1b:00.0"));
    delete nvml;
    CHECK_ERROR(nvml::Nvml::open("/nowhere/libnvidia-ml.so.1"), "driver.missing");
    CHECK_ERROR(nvml::Nvml::open(NO_DRIVER_LIBRARY), "driver.missing");
    fake::reset("fault nvmlInit_v2 1 9");
    CHECK_ERROR(nvml::Nvml::open(FAKE_CUDA_LIBRARY), "driver.missing");
    fake::reset("");
}
