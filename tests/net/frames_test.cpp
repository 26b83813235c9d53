// frames_test.cpp: frames arrive whole and in order however the stream is cut; anything else is an error.
#include "src/net/frames.hpp"

#include <algorithm>
#include <random>

#include "tests/amount.hpp"
#include "tests/error.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using net::Frame;
using net::FrameStream;

namespace {

// The bytes of a stream of frames on the wire.
std::string bytes_of(const std::vector<std::string>& bodies) {
    auto [near, far] = socket_pair();
    FrameStream stream(std::move(near));
    uint32_t kind = 0;
    for (const std::string& body : bodies) REQUIRE(stream.queue(++kind, body.data(), body.size()).ok());
    REQUIRE(*stream.flush());
    std::string bytes(65536, 0);
    bytes.resize(size_t(recv(far.number(), bytes.data(), bytes.size(), 0)));
    return bytes;
}

std::string text_of(const Frame& frame) {
    return {reinterpret_cast<const char*>(frame.bytes.data()), frame.bytes.size()};
}

}  // namespace

TEST_CASE("frames arrive whole wherever the stream is cut", "[frames]") {
    const std::vector<std::string> bodies = {"first", "", std::string(300, 'x'), "last"};
    const std::string bytes = bytes_of(bodies);
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
        auto [near, far] = socket_pair();
        FrameStream stream(std::move(near));
        std::vector<std::string> got;
        const auto take = [&] {
            for (;;) {
                auto frame = stream.receive();
                REQUIRE(frame.ok());
                if (!*frame) return;
                CHECK((*frame)->kind == got.size() + 1);
                got.push_back(text_of(**frame));
            }
        };
        if (cut > 0) write_all(far, bytes.data(), cut);
        take();
        if (cut < bytes.size()) write_all(far, bytes.data() + cut, bytes.size() - cut);
        take();
        if (got != bodies) FAIL("cut at " << cut);
    }
}

TEST_CASE("a stream that ends inside a frame is an error, between frames an end", "[frames]") {
    const std::string bytes = bytes_of({"first", "second"});
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
        auto [near, far] = socket_pair();
        FrameStream stream(std::move(near));
        if (cut > 0) write_all(far, bytes.data(), cut);
        far.reset();
        Result<std::optional<Frame>> frame = std::optional<Frame>();
        size_t whole = 0;
        while ((frame = stream.receive()).ok()) whole += frame->has_value();
        const size_t first = 16 + 5;
        CHECK(whole == size_t(cut >= first) + size_t(cut == bytes.size()));
        CHECK_ERROR(frame, "tcp.broken");
        CHECK(stream.ended() == (cut == 0 || cut == first || cut == bytes.size()));
        CHECK((frame.status().sentence().find("middle of a frame") == std::string::npos) == stream.ended());
        CHECK_FALSE(stream.receive().ok());  // and again
    }
}

TEST_CASE("noise and giants are no frames, and take no memory", "[frames]") {
    std::mt19937 random(seed());
    for (int round = 0; round < 100; ++round) {
        auto [near, far] = socket_pair();
        FrameStream stream(std::move(near));
        std::string noise(16 + random() % 100, 0);
        for (char& byte : noise) byte = char(random());
        if (round == 0)
            noise = bytes_of({"x"}).substr(0, 8) + std::string(8, '\xff');  // a right head, an absurd length
        write_all(far, noise.data(), noise.size());
        auto frame = stream.receive();
        REQUIRE_FALSE(frame.ok());
        CHECK_ERROR(frame, "tcp.broken");
        CHECK_FALSE(stream.ended());
    }
    auto [near, far] = socket_pair();
    FrameStream stream(std::move(near));
    const std::vector<char> giant(FrameStream::frame_bytes_max + 1);
    CHECK_ERROR(stream.queue(1, giant.data(), giant.size()), "internal.state");
}

TEST_CASE("a large frame passes through a small socket piece by piece, and sending never blocks", "[frames]") {
    auto [near, far] = socket_pair();
    FrameStream sending(std::move(near)), receiving(std::move(far));
    std::string body(5'000'000, 0);
    for (size_t i = 0; i < body.size(); ++i) body[i] = char(i * 7 % 251);
    REQUIRE(sending.queue(9, body.data(), body.size()).ok());
    REQUIRE_FALSE(*sending.flush());
    CHECK((sending.events() & POLLOUT) != 0);
    std::optional<Frame> got;
    while (!got) {
        REQUIRE(sending.flush().ok());
        auto frame = receiving.receive();
        REQUIRE(frame.ok());
        got = std::move(*frame);
    }
    CHECK(*sending.flush());
    CHECK((sending.events() & POLLOUT) == 0);
    CHECK(text_of(*got) == body);
}

TEST_CASE("a peer that closed is an error in sending, and its last data still arrives", "[frames]") {
    auto [near, far] = socket_pair();
    FrameStream one(std::move(near));
    {
        FrameStream other(std::move(far));
        REQUIRE(other.queue(3, "bye", 3).ok());
        REQUIRE(*other.flush());
    }
    REQUIRE(one.queue(1, "hello", 5).ok());
    auto flushed = one.flush();
    REQUIRE_FALSE(flushed.ok());
    CHECK_ERROR(flushed, "tcp.broken");
    auto frame = one.receive();
    REQUIRE(frame.ok());
    REQUIRE(*frame);
    CHECK(text_of(**frame) == "bye");
    CHECK_FALSE(one.receive().ok());
}

TEST_CASE("a peer that does not read is an error before memory runs out", "[frames]") {
    auto [near, far] = socket_pair();
    FrameStream stream(std::move(near));
    const std::string megabyte(size_t(1) << 20, 'm');
    Status failure;
    size_t queued = 0;
    for (; failure && queued < 1000; ++queued) {
        failure = stream.queue(1, megabyte.data(), megabyte.size());
        if (failure) REQUIRE(stream.flush());
    }
    CHECK_ERROR(failure, "tcp.broken");
    CHECK(queued >= FrameStream::queue_bytes_max / megabyte.size());
    CHECK(stream.queued_bytes() <= FrameStream::queue_bytes_max);
    CHECK(!stream.queue(1, "x", 1));
}
