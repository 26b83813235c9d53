// strangers_test.cpp: who else may be at the meeting's socket: noise, silence, recordings, another library version, a
// false leader. None of them hurts ranks that know the secret, and none becomes one.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <random>

#include "src/base/shared_memory.hpp"
#include "src/rendezvous/handshake.hpp"
#include "tests/faults/job.hpp"

using namespace weft::internal::test;
using weft::internal::Fd;
using weft::internal::Message;
using weft::internal::UniqueId;

namespace {

std::pair<sockaddr_un, socklen_t> address_of(const std::string& id) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = meeting_name(id);
    memcpy(address.sun_path + 1, name.data(), name.size());
    return {address, socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

Fd connect_to(const std::string& id) {
    const auto [address, length] = address_of(id);
    Fd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const bool connected = eventually([&, where = &address, bytes = length] {
        return connect(socket_fd.number(), reinterpret_cast<const sockaddr*>(where), bytes) == 0;
    });
    REQUIRE(connected);
    return socket_fd;
}

// The next message, or nothing if the other end closed or sent what is none.
std::optional<Message> receive(const Fd& socket, Fd* passed = nullptr) {
    pollfd wait{socket.number(), POLLIN, 0};
    REQUIRE(poll(&wait, 1, 60'000) == 1);
    std::vector<Fd> descriptors;
    auto message = weft::internal::receive_message(socket.number(), &descriptors);
    if (passed && !descriptors.empty()) *passed = std::move(descriptors[0]);
    return message ? *message : std::nullopt;
}

bool try_to_send(const Fd& socket, const Message& message, int descriptor = -1) {
    const auto sent =
        weft::internal::send_message(socket.number(), message, {&descriptor, descriptor >= 0 ? size_t(1) : size_t(0)});
    return sent && *sent;
}
void send(const Fd& socket, const Message& message, int descriptor = -1) {
    CHECK(try_to_send(socket, message, descriptor));
}

// Who connects and is slow to speak is turned away: then once more.
template <class Speak>
Fd connect_and(const std::string& id, Speak speak) {
    Fd socket;
    REQUIRE(eventually([&] { return speak(socket = connect_to(id)); }));
    return socket;
}
Fd greet(const std::string& id, const Message& hello, Message& challenge) {
    return connect_and(id, [&](const Fd& socket) {
        const auto answer = try_to_send(socket, hello) ? receive(socket) : std::nullopt;
        if (answer) challenge = *answer;
        return answer.has_value();
    });
}

Message hello_of_version(uint32_t version) {
    Message hello;
    hello.weft_version = version;
    hello.pid = getpid();
    weft::internal::random_bytes(hello.nonce.data(), hello.nonce.size());
    return hello;
}
Message proof_for(const UniqueId& id, const Message& hello, const Message& challenge) {
    Message proof;
    proof.kind = Message::proof;
    proof.mac = weft::internal::proof_mac(id, hello.nonce, challenge.nonce);
    return proof;
}

UniqueId secret_of(const std::string& id) { return *UniqueId::read(weft::api::unique_id_from_text(id)); }

// We hold the meeting's name before any rank comes.
class FalseLeader {
  public:
    explicit FalseLeader(const std::string& id) : id_(secret_of(id)) {
        const auto [address, length] = address_of(id);
        listener_ = Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        REQUIRE(bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
        REQUIRE(listen(listener_.number(), 16) == 0);
    }
    Fd accept_guest() {
        Fd guest(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
        const auto hello = receive(guest);
        REQUIRE(hello);
        hello_ = *hello;
        return guest;
    }
    Message challenge() const {
        Message challenge;
        challenge.kind = Message::challenge;
        weft::internal::random_bytes(challenge.nonce.data(), challenge.nonce.size());
        challenge.mac = weft::internal::challenge_mac(id_, hello_.nonce, challenge.nonce);
        return challenge;
    }

  private:
    UniqueId id_;
    Fd listener_;
    Message hello_;
};

}  // namespace

TEST_CASE("strangers at the meeting's socket are turned away and the ranks meet", "[strangers]") {
    std::mt19937 random(std::random_device{}());
    Job job(2);
    job.start(0, {"init", "reduce=1000", "destroy"}, {quiet});
    const UniqueId secret = secret_of(job.id());

    const Fd silent = connect_to(job.id());
    for (const size_t bytes :
         {size_t(1), size_t(7), sizeof(Message) - 1, sizeof(Message), sizeof(Message) + 1, size_t(60'000)}) {
        std::string noise(bytes, 0);
        for (char& byte : noise) byte = char(random());
        const Fd noisy = connect_and(job.id(), [&](const Fd& socket) {
            return ::send(socket.number(), noise.data(), noise.size(), MSG_NOSIGNAL) == ssize_t(bytes);
        });
        CHECK(!receive(noisy));  // closed
    }
    {
        const Fd hasty = connect_and(job.id(), [&](const Fd& socket) {  // a proof before it was asked for
            const Message nothing = hello_of_version(weft::internal::wire_version);
            return try_to_send(socket, proof_for(secret, nothing, nothing));
        });
        CHECK(!receive(hasty));
    }
    {
        const Message hello = hello_of_version(weft::internal::wire_version);
        Message challenge;
        const Fd ignorant = greet(job.id(), hello, challenge);
        send(ignorant, proof_for(secret_of(job.another_id()), hello, challenge));
        Fd segment;
        CHECK(!receive(ignorant, &segment));
        CHECK(!segment);
    }
    // A whole handshake, recorded; played again it proves nothing, for the challenge is another.
    Message hello = hello_of_version(weft::internal::wire_version), proof;
    {
        Message challenge;
        const Fd knowing = greet(job.id(), hello, challenge);
        CHECK(challenge.mac == weft::internal::challenge_mac(secret, hello.nonce, challenge.nonce));
        proof = proof_for(secret, hello, challenge);
        send(knowing, proof);
        Fd segment;
        const auto welcome = receive(knowing, &segment);
        REQUIRE(welcome);
        CHECK(welcome->kind == Message::welcome);
        CHECK(segment);
    }
    {
        Message challenge;
        const Fd replaying = greet(job.id(), hello, challenge);
        send(replaying, proof);
        Fd segment;
        CHECK(!receive(replaying, &segment));
        CHECK(!segment);
    }
    job.start(1, {"init", "reduce=1000", "destroy"}, {quiet});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

TEST_CASE("who connects to the meeting's socket and never speaks is let go; who has greeted has time", "[strangers]") {
    Job job(2);
    job.start(0, {"init", "reduce=1000", "destroy"}, {quiet});
    const Message hello = hello_of_version(weft::internal::wire_version);
    Message challenge;
    const Fd greeted = greet(job.id(), hello, challenge);
    std::vector<Fd> silent;
    for (int count = 0; count < 10; ++count) silent.push_back(connect_to(job.id()));
    for (const Fd& each : silent) CHECK(!receive(each));  // closed
    pollfd state{greeted.number(), POLLIN, 0};
    CHECK(poll(&state, 1, 0) == 0);  // later than they would have been, had it been silent
    send(greeted, proof_for(secret_of(job.id()), hello, challenge));
    Fd segment;
    const auto welcome = receive(greeted, &segment);
    REQUIRE(welcome);
    CHECK(welcome->kind == Message::welcome);
    CHECK(segment);
    job.start(1, {"init", "reduce=1000", "destroy"}, {quiet});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

TEST_CASE("a peer with another library version: both sides say both versions", "[strangers]") {
    Job job(2);
    job.start(0, {"init"}, {quiet});
    const Message hello = hello_of_version(WEFT_VERSION_CODE + 1);
    Message challenge;
    const Fd guest = greet(job.id(), hello, challenge);
    send(guest, proof_for(secret_of(job.id()), hello, challenge));
    Fd segment;
    const auto refusal = receive(guest, &segment);
    REQUIRE(refusal);
    CHECK(refusal->kind == Message::refusal);
    CHECK(refusal->code == weftMismatch);
    CHECK(!segment);
    job.finish();
    for (const std::string& sentence : {std::string(refusal->sentence), job.answer(0, "init")}) {
        INFO(sentence);
        CHECK(contains(sentence, "version " + std::to_string(WEFT_VERSION_CODE) + ": all ranks need the same"));
        CHECK(contains(sentence, "version " + std::to_string(WEFT_VERSION_CODE + 1) + " of the Weft library"));
    }
    CHECK(job.answer(0, "init").rfind("9 ", 0) == 0);
}

TEST_CASE("a false leader gets no ranks, and they say what it did", "[strangers]") {
    Job job(2);
    FalseLeader leader(job.id());
    const auto start = [&] { job.start(1, {"init"}, {quiet}); };
    const auto said = [&] {
        const int process = job.processes() - 1;
        job.finish(process);
        return job.answer(process, "init");
    };
    Message refusal;
    refusal.kind = Message::refusal;
    refusal.code = weftMismatch;
    strcpy(refusal.sentence, "process 1 has version 7");
    Message welcome;
    welcome.kind = Message::welcome;

    SECTION("it hangs up") {
        start();
        leader.accept_guest();
        CHECK(
            contains(said(), "6 process " + std::to_string(getpid()) + ", which led the meeting of the ranks, ended"));
    }
    SECTION("it says nothing") {
        // It waits in vain whether it has come to knock or not.
        job.start(1, {"init"}, {quiet, "WEFT_INIT_TIMEOUT_MS=200"});
        CHECK(said() == "8 rank 1 waited 200 ms for process " + std::to_string(getpid()) +
                            ", which leads the meeting of the ranks, to answer");
    }
    SECTION("it sends noise") {
        start();
        const Fd guest = leader.accept_guest();
        REQUIRE(::send(guest.number(), "hello", 5, MSG_NOSIGNAL) == 5);
        CHECK(contains(said(), "not Weft's handshake"));
    }
    SECTION("it does not know the secret") {
        start();
        const Fd guest = leader.accept_guest();
        Message challenge = leader.challenge();
        challenge.mac[5] ^= 1;
        send(guest, challenge);
        CHECK(contains(said(), "does not know the secret of the unique id"));
    }
    SECTION("it refuses before it has shown that it knows the secret") {
        start();
        const Fd guest = leader.accept_guest();
        send(guest, refusal);
        CHECK(contains(
            said(), "3 process " + std::to_string(getpid()) + ", which leads the meeting, sent a message out of turn"));
    }
    SECTION("it refuses with a code that is none") {
        refusal.code = GENERATE(-1, 0, 10);
        start();
        const Fd guest = leader.accept_guest();
        send(guest, leader.challenge());
        REQUIRE(receive(guest));
        send(guest, refusal);
        CHECK(contains(
            said(), "3 process " + std::to_string(getpid()) + ", which leads the meeting, sent a message out of turn"));
    }
    SECTION("it is of another version") {
        start();
        const Fd guest = leader.accept_guest();
        send(guest, leader.challenge());
        REQUIRE(receive(guest));
        send(guest, refusal);
        CHECK(said() == "9 process 1 has version 7");
    }
    SECTION("it welcomes without a segment") {
        start();
        const Fd guest = leader.accept_guest();
        send(guest, leader.challenge());
        REQUIRE(receive(guest));
        send(guest, welcome);
        CHECK(contains(said(), "out of turn"));
    }
    SECTION("it passes a file that could shrink under the ranks") {
        start();
        const Fd guest = leader.accept_guest();
        send(guest, leader.challenge());
        REQUIRE(receive(guest));
        const Fd file(memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        REQUIRE(ftruncate(file.number(), 1 << 20) == 0);
        send(guest, welcome, file.number());
        CHECK(contains(said(), "is not sealed to its size"));
    }
    SECTION("it passes a segment of another layout") {
        start();
        const Fd guest = leader.accept_guest();
        send(guest, leader.challenge());
        REQUIRE(receive(guest));
        const size_t bytes = GENERATE(1, 4096, 1 << 20);
        auto memory = weft::internal::SharedMemory::create("stranger", bytes);
        REQUIRE(memory);
        send(guest, welcome, memory->fd());
        CHECK(contains(said(), "not one of this library's version"));
    }
}
