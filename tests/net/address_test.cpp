// address_test.cpp: addresses as text and as bytes, and the selection of a host's addresses.
#include "src/net/address.hpp"

#include <net/if.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>

#include "src/net/resolution.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using net::Address;
using net::InterfaceAddress;

namespace {

Address at(const std::string& text) {
    auto address = Address::parse(text);
    if (!address) throw std::runtime_error(address.status().sentence());
    return *address;
}

const std::vector<InterfaceAddress> machine = {
    {"lo", at("127.0.0.1")},
    {"eth0", at("10.0.0.1")},
    {"eth1", at("10.1.0.1")},
    {"docker0", at("172.17.0.1")},
    {"lo", at("::1")},
    {"eth0", at("fd00::1")},
    {"eth0", at("fe80::1").with_scope(2)},
    {"ib0", at("fe80::2").with_scope(5)},
};

std::string chosen(const std::string& names, const std::string& family = "",
                   const std::vector<InterfaceAddress>& all = machine) {
    auto addresses = net::choose_addresses(all, names, family);
    if (!addresses) return addresses.status().sentence();
    std::string text;
    for (const Address& address : *addresses) {
        const std::string host = address.with_scope(0).text();
        text += fmt::format("{}{}/{}", text.empty() ? "" : " ", host, address.interface());
    }
    return text;
}

}  // namespace

TEST_CASE("an address is printed as it is parsed", "[address]") {
    for (const char* text : {"10.0.0.1:29500", "0.0.0.0:1", "255.255.255.255:65535", "[fd00::2]:29500", "[::1]:80",
                             "[fe80::1%lo]:29500", "10.0.0.1", "fd00::2", "fe80::1%lo"})
        CHECK(at(text).text() == text);
    CHECK(at("[fd00::2]").text() == "fd00::2");
    CHECK(at("10.0.0.1:29500").port() == 29500);
    CHECK(at("[::1%lo]:80").scope() == if_nametoindex("lo"));
    CHECK(at("10.0.0.1:1") == at("10.0.0.1").with_port(1));
    CHECK_FALSE(at("10.0.0.1:1") == at("10.0.0.1:2"));
    CHECK_FALSE(at("fe80::1%lo") == at("fe80::1"));
}

TEST_CASE("a text that is no address is refused and repeated in the error", "[address]") {
    for (const char* text : {"",
                             ":",
                             "host:80",
                             "10.0.0.1:",
                             "10.0.0.1:0",
                             "10.0.0.1:65536",
                             "10.0.0.1:80x",
                             "10.0.0:80",
                             "10.0.0.1.2",
                             "[10.0.0.1]:80",
                             "[::1",
                             "[::1]:",
                             "[::1]80",
                             "::1::2",
                             "[]:80",
                             "]:80",
                             "[",
                             "fe80::1%nosuch0",
                             "10.0.0.1:-1",
                             "1.2.3.4 :80"}) {
        INFO(text);
        auto address = Address::parse(text);
        REQUIRE_FALSE(address.ok());
        CHECK_ERROR(address, "tcp.address");
        CHECK_THAT(address.status().sentence(), Catch::Contains(text));
    }
}

TEST_CASE("addresses pack into some bytes and unpack, and truncated ones are none", "[address]") {
    const std::vector<Address> all = {at("10.0.0.1:29500"), at("[fd00::2]:1").of_interface(3),
                                      at("192.168.1.2:65535").of_interface(15)};
    std::vector<std::byte> bytes;
    for (const Address& address : all) address.pack(bytes);
    CHECK(bytes.size() == 7 + 19 + 7);
    const std::byte* place = bytes.data();
    for (const Address& address : all) {
        auto unpacked = Address::unpack(place, bytes.data() + bytes.size());
        REQUIRE(unpacked);
        CHECK(*unpacked == address);
        CHECK(unpacked->interface() == address.interface());
    }
    CHECK_FALSE(Address::unpack(place, bytes.data() + bytes.size()));
    for (size_t length = 7 + 1; length < 7 + 19; ++length) {
        place = bytes.data() + 7;
        CHECK_FALSE(Address::unpack(place, bytes.data() + length));
    }
    bytes[0] = std::byte{5};
    place = bytes.data();
    CHECK_FALSE(Address::unpack(place, bytes.data() + bytes.size()));
}

TEST_CASE("IPv4 that a dual-stack socket reports as IPv6 is IPv4", "[address]") {
    const Address mapped = at("[::ffff:10.0.0.7]:99");
    const auto plain = Address::of(mapped.raw());
    REQUIRE(plain);
    CHECK(plain->text() == "10.0.0.7:99");
    sockaddr other{};
    other.sa_family = AF_UNIX;
    CHECK_FALSE(Address::of(&other));
    CHECK_FALSE(Address::of(nullptr));
}

TEST_CASE("by default every interface that leads somewhere is used, best addresses first", "[address]") {
    CHECK(chosen("") == "10.0.0.1/0 10.1.0.1/1 fd00::1/0 fe80::2/2");
    CHECK(chosen("", "AF_INET") == "10.0.0.1/0 10.1.0.1/1");
    CHECK(chosen("", "AF_INET6") == "fd00::1/0 fe80::2/1");
    const std::vector<InterfaceAddress> contained = {machine[0], machine[3]};
    CHECK(chosen("", "", contained) == "172.17.0.1/0");
    const std::vector<InterfaceAddress> lonely = {machine[0], machine[4]};
    CHECK(chosen("", "", lonely) == "127.0.0.1/0 ::1/0");
}

TEST_CASE("addresses that may be the same on every host come last", "[address]") {
    // A BMC's interface comes before the others in the kernel's order, and eth0 has an automatic address as well.
    const std::vector<InterfaceAddress> own = {
        {"lo", at("127.0.0.1")},     {"idrac", at("169.254.1.2")}, {"usb0", at("192.168.201.210")},
        {"eth0", at("169.254.7.7")}, {"eth0", at("10.77.0.1")},    {"eth0", at("fd00::1")},
    };
    CHECK(chosen("", "", own) == "192.168.201.210/1 10.77.0.1/2 fd00::1/2 169.254.1.2/0 169.254.7.7/2");
    CHECK(chosen("idrac", "", own) == "169.254.1.2/0");
    CHECK(at("169.254.0.1").is_unconfigured());
    for (const char* other : {"169.253.0.1", "169.255.0.1", "10.0.0.1", "fe80::1"})
        CHECK_FALSE(at(other).is_unconfigured());

    const auto order = [&](const std::vector<const char*>& texts) {
        std::vector<Address> addresses;
        for (const char* text : texts) addresses.push_back(at(text));
        std::string line;
        for (const Address& address : net::call_order(addresses, own))
            line += (line.empty() ? "" : " ") + address.with_scope(0).text();
        return line;
    };
    CHECK(order({"192.168.201.210:40000", "10.77.0.2:40000", "169.254.1.3:40000"}) ==
          "10.77.0.2:40000 169.254.1.3:40000 192.168.201.210:40000");
    CHECK(order({"169.254.1.2:1", "[fe80::7]:1", "[fd00::2]:1", "10.77.0.2:1"}) ==
          "[fd00::2]:1 10.77.0.2:1 [fe80::7]:1 169.254.1.2:1");
    // A peer on this host has this host's addresses, in the order that it likes best.
    CHECK(order({"10.77.0.1:2", "192.168.201.210:2", "127.0.0.1:2"}) == "10.77.0.1:2 192.168.201.210:2 127.0.0.1:2");
}

TEST_CASE("interfaces are chosen by name as NCCL_SOCKET_IFNAME does", "[address]") {
    CHECK(chosen("eth") == "10.0.0.1/0 10.1.0.1/1 fd00::1/0");
    CHECK(chosen("eth1") == "10.1.0.1/0");
    CHECK(chosen("=eth") == chosen("=eth"));
    CHECK_THAT(chosen("=eth"), Catch::Contains("WEFT_SOCKET_IFNAME is =eth"));
    CHECK(chosen("=eth1,lo") == "127.0.0.1/0 10.1.0.1/1 ::1/0");
    CHECK(chosen("^eth0") == "10.1.0.1/0 fe80::2/1");
    CHECK(chosen("^=eth") == chosen(""));
    CHECK(chosen("^eth,ib") == "172.17.0.1/0");
    CHECK(chosen("^") == chosen(""));
    CHECK(chosen("docker") == "172.17.0.1/0");
    CHECK(chosen("lo") == "127.0.0.1/0 ::1/0");
    CHECK(chosen(",ib,") == "fe80::2/0");
}

TEST_CASE("a selection without an address lists the interfaces", "[address]") {
    CHECK_ERROR(net::choose_addresses(machine, "eth9", ""), "tcp.interface");
    CHECK_ERROR(net::choose_addresses(machine, "", "AF_INET4"), "option.value");
    for (const std::string& sentence : {chosen("eth9"), chosen("ib", "AF_INET")}) {
        CHECK_THAT(sentence, Catch::Contains("WEFT_SOCKET_IFNAME is") && Catch::Contains("eth1 10.1.0.1") &&
                                 Catch::Contains("lo 127.0.0.1"));
    }
    CHECK_THAT(chosen("", "AF_INET4"), Catch::Contains("AF_INET4") && Catch::Contains("AF_INET6"));
    CHECK_THAT(chosen("", "", {}), Catch::Contains("none"));
}

TEST_CASE("this machine has an address, and names are resolved", "[address]") {
    auto local = net::local_addresses();
    REQUIRE(local.ok());
    REQUIRE_FALSE(local->empty());
    for (const Address& address : *local) CHECK(address.port() == 0);
    for (const char* host : {"127.0.0.1", "::1", "[::1]", "localhost"}) {
        auto found = net::resolve(host, 77);
        INFO(host);
        REQUIRE(found.ok());
        REQUIRE_FALSE(found->empty());
        CHECK(found->front().port() == 77);
        CHECK(found->front().is_loopback());
    }
    auto missing = net::resolve("no-such-host.invalid", 1);
    REQUIRE_FALSE(missing.ok());
    CHECK_ERROR(missing, "tcp.unknown-host");
    CHECK_THAT(missing.status().sentence(), Catch::Contains("no-such-host.invalid"));
}

TEST_CASE("a caller can wait for the look-up of a name, and gets the result once", "[address]") {
    for (const char* host : {"127.0.0.1", "localhost"}) {
        net::Resolution resolution = net::look_up(host, 77, AF_INET);
        auto found = resolution.take(-1);
        REQUIRE(found);
        REQUIRE(found->ok());
        for (const Address& address : **found) CHECK(address.text() == "127.0.0.1:77");
        CHECK_FALSE(resolution.take(1));
    }
    auto found = net::look_up("no-such-host.invalid", 1).take(60'000);
    REQUIRE(found);
    CHECK_FALSE(found->ok());
    auto own = net::look_up_own_name().take(60'000);
    REQUIRE(own);
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    CHECK((**own).rfind(name, 0) == 0);
}

TEST_CASE("a look-up without an answer blocks no thread, and its exception is its answer", "[address]") {
    std::promise<void> over;
    net::Question<int> slow("a slow question", [&over]() -> Result<int> {
        over.get_future().wait();
        throw std::runtime_error("no");
    });
    CHECK_FALSE(slow.take());
    CHECK_FALSE(slow.take(1));
    over.set_value();
    auto answer = slow.take(-1);
    REQUIRE(answer);
    CHECK_ERROR(*answer, "tcp.resolver");
    CHECK(answer->status().sentence() == "a slow question: no");
}

TEST_CASE("the speed of the used interfaces comes from the kernel, and counts for real interfaces only", "[address]") {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("weft-speeds-" + std::to_string(getpid()));
    const auto make = [&](const std::string& name, const std::string& kind, const std::string& speed) {
        fs::create_directories(folder / name / kind);
        if (!speed.empty()) std::ofstream(folder / name / "speed") << speed << "\n";
    };
    make("eth0", "device", "25000");
    make("eth1", "device", "10000");
    make("bond0", "bonding", "200000");
    make("down0", "device", "-1");
    make("odd0", "device", "0");
    make("mute0", "device", "");
    make("veth0", "queues", "10000");
    const auto speed = [&](const std::vector<std::string>& names) { return net::link_mbps(names, folder.string()); };
    CHECK(speed({"eth0"}) == 25000);
    CHECK(speed({"eth0", "eth1"}) == 35000);
    CHECK(speed({"bond0"}) == 200000);
    for (const char* unknown : {"down0", "odd0", "mute0", "veth0", "absent0"}) {
        INFO(unknown);
        CHECK(speed({unknown}) == 0);
        CHECK(speed({"eth0", unknown}) == 0);
    }
    CHECK(speed({}) == 0);
    fs::remove_all(folder);
    CHECK(net::link_mbps() >= 0);
}
