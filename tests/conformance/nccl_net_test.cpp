// nccl_net_test.cpp: connections over network plugins of NCCL, beyond the conformance suite: the layouts,
// device memory, and strangers.
#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <cstddef>

#include "src/base/fd.hpp"
#include "src/base/options.hpp"
#include "tests/capture.hpp"
#include "tests/conformance/connection.hpp"
#include "tests/error.hpp"
#include "transports/nccl_net/abi.hpp"

namespace weft::internal::test {
namespace {

namespace abi = nccl_net::abi;

template <int version>
bool functions_are_in_order() {
    using F = abi::Functions<version>;
    const size_t places[] = {offsetof(F, name),           offsetof(F, init),        offsetof(F, devices),
                             offsetof(F, get_properties), offsetof(F, listen),      offsetof(F, connect),
                             offsetof(F, accept),         offsetof(F, reg_mr),      offsetof(F, reg_mr_dma_buf),
                             offsetof(F, dereg_mr),       offsetof(F, isend),       offsetof(F, irecv),
                             offsetof(F, iflush),         offsetof(F, test),        offsetof(F, close_send),
                             offsetof(F, close_recv),     offsetof(F, close_listen)};
    for (size_t index = 0; index < std::size(places); ++index)
        if (places[index] != index * sizeof(void*)) return false;
    return true;
}

const Transport& nccl_net_row() {
    for (const Transport* row : registry::transports())
        if (row->name == std::string("nccl_net")) return *row;
    FAIL("the plugin is not loaded");
    throw;
}

// The failure in place of the next message.
Status failure_of(Connection& connection) {
    Status seen;
    REQUIRE(eventually([&] {
        if (connection.sender) connection.push();
        SlotInfo info;
        auto slot = connection.receiver->receive(info);
        REQUIRE(!(slot && *slot));
        if (!slot) seen = slot.take_status();
        return !seen;
    }));
    return seen;
}

template <class T>
T must(Result<T> result) {
    if (!result) FAIL(result.status().sentence());
    return std::move(*result);
}

// The toy has this behaviour as long as this object lives.
struct Toy {
    explicit Toy(const std::string& behaviour) { setenv("TOY_NET", behaviour.c_str(), 1); }
    Toy(const Toy&) = delete;
    Toy& operator=(const Toy&) = delete;
    ~Toy() { unsetenv("TOY_NET"); }
};

using Count = int (*)();
Count function_of_toy(const char* name) {
    void* const plugin = dlopen(options().nccl_net_plugin.c_str(), RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(plugin);
    const auto found = reinterpret_cast<Count>(dlsym(plugin, name));
    REQUIRE(found);
    return found;
}

constexpr int given_depth = 3;
constexpr size_t given_bytes = 3000;

// Registered slots of both ends. The toy's device memory is the host's.
struct Given {
    std::vector<std::byte> slots[2] = {std::vector<std::byte>(given_depth * given_bytes),
                                       std::vector<std::byte>(given_depth* given_bytes)};
    std::unique_ptr<RegisteredMemory> memory[2];

    Given(RangeKind kind, bool by_dma_buf = false, int device = 0) {
        for (int end = 0; end < 2; ++end) {
            // The transport keeps its own descriptor.
            const Fd dma_buf = by_dma_buf ? Fd::open("/dev/null", O_RDONLY) : Fd();
            memory[end] = must(nccl_net_row().register_memory({.data = slots[end].data(),
                                                               .bytes = slots[end].size(),
                                                               .kind = kind,
                                                               .device = device,
                                                               .dma_buf = dma_buf.number()}));
        }
    }
    GivenSlots of_ends() { return {{slots[0].data(), slots[1].data()}, {memory[0].get(), memory[1].get()}}; }
};

void exchange_all_sizes(Connection& connection) {
    for (uint64_t number = 0; number < 20; ++number) {
        REQUIRE(eventually([&] { return connection.send(number, size_t(number * 151 % given_bytes)); }));
        REQUIRE(connection.arrives(number, size_t(number * 151 % given_bytes)));
    }
}

}  // namespace

TEST_CASE("the structs have NCCL's layouts", "[nccl_net]") {
    CHECK(functions_are_in_order<8>());
    CHECK(functions_are_in_order<9>());
    CHECK(functions_are_in_order<10>());
    CHECK(functions_are_in_order<11>());
    CHECK(functions_are_in_order<12>());
    using P8 = abi::Properties<8>;
    CHECK((offsetof(P8, mbps) == 32 && offsetof(P8, device_type) == 52 && sizeof(P8) == 64));
    using P9 = abi::Properties<9>;
    CHECK((offsetof(P9, force_flush) == 32 && offsetof(P9, mbps) == 36 && offsetof(P9, device_type) == 56));
    CHECK((offsetof(P9, members) == 64 && offsetof(P9, message_bytes_most) == 88 && sizeof(P9) == 104));
    CHECK(sizeof(abi::Properties<10>) == 104);
    using P11 = abi::Properties<11>;
    CHECK((offsetof(P11, request_bytes_most) == 104 && sizeof(P11) == 112));
    using P12 = abi::Properties<12>;
    CHECK((offsetof(P12, members) == 64 && offsetof(P12, message_bytes_most) == 104));
    CHECK((offsetof(P12, request_bytes_most) == 120 && offsetof(P12, rail) == 124 && sizeof(P12) == 128));
}

// The toy shows the bytes of device memory only after a flush.
TEST_CASE("messages in device memory are flushed before they are received", "[nccl_net]") {
    REQUIRE(nccl_net_row().can(Capability::device));
    Given given(RangeKind::device, GENERATE(false, true));
    Connection connection(nccl_net_row(), given_depth, given_bytes, 0, given.of_ends());
    exchange_all_sizes(connection);
}

TEST_CASE("a flush that fails is an error, and the message is not received", "[nccl_net]") {
    const auto [behaviour, reason] = GENERATE(
        table<std::string, std::string>({{"flush", "the flush was refused"}, {"flush_late", "the flush failed"}}));
    Given given(RangeKind::device);
    Connection connection(nccl_net_row(), given_depth, given_bytes, 0, given.of_ends());
    exchange_all_sizes(connection);
    const Toy toy(behaviour);
    REQUIRE(eventually([&] { return connection.send(20, 100); }));
    const Status seen = failure_of(connection);
    CHECK_ERROR(seen, "transport.broken", 1, 0);
    CHECK_THAT(seen.sentence(), Catch::Contains("flush") && Catch::Contains(reason));
}

// The first range of a comm has the headers; the toy refuses the second one.
TEST_CASE("messages in slots that a plugin refuses to register are copied, and the log says so once", "[nccl_net]") {
    const Toy toy("refuse_second");
    Given given(RangeKind::pinned);
    Capture log(stderr);  // WEFT_DEBUG is INFO
    {
        Connection connection(nccl_net_row(), given_depth, given_bytes, 0, given.of_ends());
        exchange_all_sizes(connection);
        Connection again(nccl_net_row(), given_depth, given_bytes, 0, given.of_ends());
        exchange_all_sizes(again);
    }
    const std::string said = log.end();
    INFO(said);
    const auto count = [&](const std::string& text) {
        int found = 0;
        for (size_t at = said.find(text); at != std::string::npos; at = said.find(text, at + 1)) ++found;
        return found;
    };
    // A range of each end.
    CHECK(count("are copied: the network plugin Toy cannot register 9000 bytes of host memory") == 2);
}

TEST_CASE("posted messages whose memory a plugin refuses to register are copied", "[nccl_net]") {
    const Toy toy("refuse_second");
    const Transport& transport = nccl_net_row();
    Connection connection(transport, 3, 1000);
    std::vector<std::byte> user[2] = {std::vector<std::byte>(1000), std::vector<std::byte>(1000)};
    std::unique_ptr<RegisteredMemory> memory[2];
    for (int i = 0; i < 2; ++i) memory[i] = must(transport.register_memory({.data = user[i].data(), .bytes = 1000}));
    for (uint64_t number = 0; number < 20; ++number) {
        // The toy refuses the memory of the first message, and takes the other.
        std::vector<std::byte>& data = user[number % 2];
        std::fill(data.begin(), data.end(), std::byte(number));
        const size_t bytes = size_t(number * 50);
        REQUIRE(eventually([&] {
            return must(
                connection.sender->post(data.data(), memory[number % 2].get(), {bytes, number, uint32_t(number * 7)}));
        }));
        REQUIRE(connection.arrives(number, bytes));
        REQUIRE(eventually([&] { return connection.push() && connection.sender->sent() == number + 1; }));
    }
}

// The copy is made when the receiver has a target, so slots may be filled meanwhile.
TEST_CASE("the copy of a posted message takes no slot that the caller fills", "[nccl_net]") {
    const Toy toy("refuse_second");
    const bool given_slots = GENERATE(false, true);
    INFO(given_slots);
    Given given(RangeKind::pinned);
    Connection connection(nccl_net_row(), given_depth, given_bytes, 0, given_slots ? given.of_ends() : GivenSlots());
    std::vector<std::byte> user(given_bytes);
    const auto memory = must(nccl_net_row().register_memory({.data = user.data(), .bytes = user.size()}));
    const auto message = [](uint64_t number) { return SlotInfo{given_bytes, number, uint32_t(number * 7)}; };
    // The first range after the headers, which the toy refuses.
    REQUIRE(eventually([&] { return must(connection.sender->post(user.data(), memory.get(), message(0))); }));
    if (given_slots)
        // Message 3 has the slot that message 0 did not need.
        for (const int number : {1, 2, 3})
            std::fill_n(given.slots[1].begin() + ptrdiff_t(number % given_depth * given_bytes), given_bytes,
                        std::byte(number));
    const Slot own = must(connection.sender->acquire());
    REQUIRE(own);
    if (!given_slots) std::fill_n(own.data, given_bytes, std::byte(1));
    REQUIRE(connection.arrives(0, given_bytes));
    REQUIRE(connection.sender->publish(message(1)).ok());
    REQUIRE(connection.arrives(1, given_bytes));
    for (const uint64_t number : {2, 3}) {
        Slot slot;
        REQUIRE(eventually([&] { return slot = must(connection.sender->acquire()), bool(slot); }));
        if (!given_slots) std::fill_n(slot.data, given_bytes, std::byte(number));
        REQUIRE(connection.sender->publish(message(number)).ok());
        REQUIRE(connection.arrives(number, given_bytes));
    }
}

TEST_CASE("a plugin that refuses device memory, or does not connect to itself, cannot use it", "[nccl_net]") {
    // A GPU each, because an answer serves all ranges of a GPU.
    const auto [behaviour, gpu, reason] =
        GENERATE(table<std::string, int, std::string>({{"refuse_device", 1, "the peer memory module is missing"},
                                                       {"listen", 2, "no port is left"},
                                                       {"connect", 3, "ncclRemoteError"},
                                                       {"never", 4, "not ready after 1 s"}}));
    const Toy toy(behaviour);
    std::vector<std::byte> bytes(4096);
    auto made = nccl_net_row().register_memory(
        {.data = bytes.data(), .bytes = bytes.size(), .kind = RangeKind::device, .device = gpu});
    CHECK_ERROR(made, "transport.broken");
    CHECK_THAT(made.status().sentence(), Catch::Contains(reason));
}

TEST_CASE("one trial of each NIC serves all ranges of a GPU", "[nccl_net]") {
    const auto listens = function_of_toy("toy_net_listens");
    const Fd dma_buf = Fd::open("/dev/null", O_RDONLY);
    std::vector<std::byte> bytes(4096);
    // The trials for this range.
    const auto trials = [&](int gpu, size_t size, bool by_dma_buf = false) {
        const int before = listens();
        (void)nccl_net_row().register_memory({.data = bytes.data(),
                                              .bytes = size,
                                              .kind = RangeKind::device,
                                              .device = gpu,
                                              .dma_buf = by_dma_buf ? dma_buf.number() : -1});
        return listens() - before;
    };
    CHECK(trials(5, 2000) == 2);
    CHECK(trials(5, 2000) == 0);
    CHECK(trials(5, 100) == 0);
    CHECK(trials(5, 4096) == 2);
    CHECK(trials(6, 100) == 2);
    CHECK(trials(5, 100, true) == 2);
    CHECK(trials(5, 100, true) == 0);
    const Toy toy("refuse_device");
    CHECK(trials(5, 4000) == 0);
    CHECK(trials(7, 2000) == 2);
    CHECK(trials(7, 3000) == 0);
    CHECK(trials(7, 1000) == 2);
}

TEST_CASE("a NIC that refuses the memory of a GPU leaves it to the other NICs", "[nccl_net]") {
    const Toy toy("refuse_device0");
    Capture log(stderr);  // WEFT_DEBUG is INFO
    {
        Given given(RangeKind::device, false, 8);
        Connection connection(nccl_net_row(), given_depth, given_bytes, 0, given.of_ends());
        exchange_all_sizes(connection);
    }
    const std::string said = log.end();
    INFO(said);
    CHECK_THAT(said, Catch::Contains("toy0 does not serve the memory of device 8") &&
                         Catch::Contains("the NIC is behind another switch") && !Catch::Contains("toy1 does not"));
}

// The toy aborts where a comm has more requests than NCCL would make.
TEST_CASE("a connection of many slots has no more requests than plugins take", "[nccl_net]") {
    const Transport& transport = nccl_net_row();
    const auto unclean_closes = function_of_toy("toy_net_unclean_closes");
    const int before = unclean_closes();
    const int depth = GENERATE(16, 17, 40);
    {
        Connection connection(transport, depth, 200);
        uint64_t sent = 0;
        for (uint64_t received = 0; received < 100; ++received) {
            while (sent < 100 && connection.send(sent, 100)) ++sent;
            REQUIRE(connection.arrives(received, 100));
        }
    }
    CHECK(unclean_closes() == before);
}

TEST_CASE("a comm is closed without requests", "[nccl_net]") {
    const auto unclean_closes = function_of_toy("toy_net_unclean_closes");
    const int before = unclean_closes();
    for (const uint64_t count : {1, 2, 7}) {
        Connection connection(nccl_net_row(), 3, 200);
        for (uint64_t number = 0; number < count; ++number) {
            REQUIRE(connection.send(number, 100));
            REQUIRE(connection.arrives(number, 100));
        }
    }
    CHECK(unclean_closes() == before);
}

TEST_CASE("a receiver that waits for a sender that has left gets an error", "[nccl_net]") {
    Connection connection(nccl_net_row(), 2, 100);
    REQUIRE(connection.send(0, 10));
    REQUIRE(connection.arrives(0, 10));
    connection.sender.reset();
    const Status seen = failure_of(connection);
    CHECK_ERROR(seen, "transport.broken", 1, 0);
    CHECK_THAT(seen.sentence(), Catch::Contains("has closed the connection"));
}

TEST_CASE("slots that are not registered are refused", "[nccl_net]") {
    const Transport& transport = nccl_net_row();
    Connection connection(transport, 2, 100);
    std::vector<std::byte> slots(200);
    connection.given.data[0] = slots.data();
    Blob blob;
    CHECK_ERROR(transport.listen(connection.options(0, 2, 100), blob), "internal.state");
}

TEST_CASE("a process that does not know the secret is an error, and its message is not received", "[nccl_net]") {
    const Transport& transport = nccl_net_row();
    Connection connection(transport, 2, 100);
    Blob blob;
    connection.receiver = must(transport.listen(connection.options(0, 2, 100), blob));
    net::Secret other;
    net::random_bytes(other.key.data(), other.key.size());
    const net::Identity stranger = net::Identity::of(other);
    ConnectionOptions options = connection.options(1, 2, 100);
    options.identity = &stranger;
    connection.sender = must(transport.connect(options, blob));
    REQUIRE(connection.send(0, 10));
    const Status seen = failure_of(connection);
    CHECK_ERROR(seen, "transport.broken", 1, 0);
    CHECK_THAT(seen.sentence(), Catch::Contains("secret"));
}

TEST_CASE("the rails are the plugin's devices", "[nccl_net]") {
    const std::vector<Rail> rails = nccl_net_row().rails();
    REQUIRE(rails.size() == 2);
    CHECK(rails[1].name == "toy1");
    CHECK(rails[1].mbps == 100'000);
    CHECK(rails[1].why_not == "");
    CHECK_THAT(rails[1].detail, Catch::Contains("Toy") && Catch::Contains("version 11"));
}

}  // namespace weft::internal::test
