// listen_address_test.cpp: the text of a receiver's address, and how several sockets share a message.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/net/ends.hpp"
#include "transports/tcp/message.hpp"

namespace weft::internal::test {

using tcp::ListenAddress;

TEST_CASE("a receiver's address holds as many addresses as fit, and the sender chooses last", "[tcp]") {
    ListenAddress listen_address{.token = 7, .depth = 4, .stripes = 2, .slot_bytes = 4096, .addresses = {}};
    for (const char* text : {"10.0.0.1:1", "10.1.0.1:2", "[fd00::1]:3", "[fd00::2]:4", "[fd00::3]:5", "[fd00::4]:6",
                             "[fd00::5]:7", "[fd00::6]:8", "[fd00::ffff:fffe]:9"})
        listen_address.addresses.push_back(*net::Address::parse(text));
    Blob blob = listen_address.blob();
    CHECK(blob.words[Blob::of_transport] == 0);
    blob.words[Blob::of_transport] = 3;
    const auto told = ListenAddress::of(blob);
    REQUIRE(told);
    REQUIRE(told->addresses.size() == 8);
    for (size_t i = 0; i < told->addresses.size(); ++i)
        CHECK(told->addresses[i].text() == listen_address.addresses[i].text());
}

TEST_CASE("a listen address has no stripe without an address, though its interfaces have more than it has room for",
          "[tcp]") {
    for (const int interfaces : {1, 3, 7, 8}) {
        ListenAddress listen_address{.token = 1, .depth = 1, .stripes = interfaces, .slot_bytes = 1, .addresses = {}};
        for (int i = 0; i < interfaces; ++i)
            listen_address.addresses.push_back(loopback("::1").with_port(uint16_t(i + 1)).of_interface(i));
        const auto back = ListenAddress::of(listen_address.blob());
        REQUIRE(back);
        CHECK(back->stripes == std::min(interfaces, 7));
        for (int stripe = 0; stripe < back->stripes; ++stripe)
            CHECK(std::any_of(back->addresses.begin(), back->addresses.end(),
                              [&](const net::Address& address) { return address.interface() == stripe; }));
    }
}

TEST_CASE("a listen address survives its blob, and shares cover a message without gaps", "[tcp]") {
    ListenAddress listen_address{.token = ~uint64_t(0), .depth = 5, .stripes = 2, .slot_bytes = 123, .addresses = {}};
    for (int i = 0; i < 14; ++i)
        listen_address.addresses.push_back(
            loopback(i % 2 ? "::1" : "127.0.0.1").with_port(uint16_t(i + 1)).of_interface(i % 2));
    const auto back = ListenAddress::of(listen_address.blob());
    REQUIRE(back);
    CHECK(back->token == listen_address.token);
    CHECK(back->depth == 5);
    CHECK(back->stripes == 2);
    CHECK(back->slot_bytes == 123);
    REQUIRE(back->addresses.size() == 10);  // those that fit
    for (size_t i = 0; i < 10; ++i) CHECK(back->addresses[i] == listen_address.addresses[i]);
    Blob wrong = listen_address.blob();
    wrong.words[3] |= 15;
    CHECK_FALSE(ListenAddress::of(wrong));
    wrong = listen_address.blob();
    wrong.words[1] |= uint64_t(0xff) << 48;
    CHECK_FALSE(ListenAddress::of(wrong));
    for (int stripes = 1; stripes <= tcp::stripes_max; ++stripes)
        for (const uint64_t bytes :
             {uint64_t(0), uint64_t(1), tcp::striped_bytes, tcp::striped_bytes + 1, uint64_t(1) << 40}) {
            uint64_t end = 0;
            for (int stripe = 0; stripe < stripes; ++stripe) {
                const tcp::Share share = tcp::share_of(bytes, stripe, stripes);
                CHECK(share.begin == end);
                end = share.end;
            }
            CHECK(end == bytes);
        }
}

}  // namespace weft::internal::test
