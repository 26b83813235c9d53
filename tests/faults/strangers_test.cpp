// strangers_test.cpp: strangers at the rendezvous's socket: noise, silence, recordings, another library version, a
// false leader. None of them hurts ranks that know the secret, and none becomes a rank.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <random>

#include "src/base/shared_memory.hpp"
#include "src/rendezvous/handshake.hpp"
#include "tests/amount.hpp"
#include "tests/faults/job.hpp"

using namespace weft::internal::test;
using weft::internal::Fd;
using weft::internal::HandshakeMessage;
using weft::internal::UniqueId;

namespace {

std::pair<sockaddr_un, socklen_t> address_of(const std::string& id) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = rendezvous_name(id);
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
std::optional<HandshakeMessage> receive(const Fd& socket, Fd* passed = nullptr) {
    pollfd wait{socket.number(), POLLIN, 0};
    REQUIRE(poll(&wait, 1, 60'000) == 1);
    std::vector<Fd> descriptors;
    auto message = weft::internal::receive_message(socket.number(), &descriptors);
    if (passed && !descriptors.empty()) *passed = std::move(descriptors[0]);
    return message ? *message : std::nullopt;
}

bool try_to_send(const Fd& socket, const HandshakeMessage& message, int descriptor = -1) {
    const auto sent =
        weft::internal::send_message(socket.number(), message, {&descriptor, descriptor >= 0 ? size_t(1) : size_t(0)});
    return sent && *sent;
}
void send(const Fd& socket, const HandshakeMessage& message, int descriptor = -1) {
    CHECK(try_to_send(socket, message, descriptor));
}

// A client that is slow to speak is refused: then once more.
template <class Speak>
Fd connect_and(const std::string& id, Speak speak) {
    Fd socket;
    REQUIRE(eventually([&] { return speak(socket = connect_to(id)); }));
    return socket;
}
Fd greet(const std::string& id, const HandshakeMessage& hello, HandshakeMessage& challenge) {
    return connect_and(id, [&](const Fd& socket) {
        const auto answer = try_to_send(socket, hello) ? receive(socket) : std::nullopt;
        if (answer) challenge = *answer;
        return answer.has_value();
    });
}

HandshakeMessage hello_of_version(uint32_t version) {
    HandshakeMessage hello;
    hello.weft_version = version;
    hello.pid = getpid();
    weft::internal::random_bytes(hello.nonce.data(), hello.nonce.size());
    return hello;
}
HandshakeMessage proof_for(const UniqueId& id, const HandshakeMessage& hello, const HandshakeMessage& challenge) {
    HandshakeMessage proof;
    proof.kind = HandshakeMessage::proof;
    proof.mac = weft::internal::proof_mac(id, hello.nonce, challenge.nonce);
    return proof;
}

UniqueId secret_of(const std::string& id) { return *UniqueId::read(weft::unique_id_from_text(id)); }

// We hold the rendezvous's name before any rank comes.
class FalseLeader {
  public:
    explicit FalseLeader(const std::string& id) : id_(secret_of(id)) {
        const auto [address, length] = address_of(id);
        listener_ = Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        REQUIRE(bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
        REQUIRE(listen(listener_.number(), 16) == 0);
    }
    Fd accept_client() {
        Fd client(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
        const auto hello = receive(client);
        REQUIRE(hello);
        hello_ = *hello;
        return client;
    }
    HandshakeMessage challenge() const {
        HandshakeMessage challenge;
        challenge.kind = HandshakeMessage::challenge;
        weft::internal::random_bytes(challenge.nonce.data(), challenge.nonce.size());
        challenge.mac = weft::internal::challenge_mac(id_, hello_.nonce, challenge.nonce);
        return challenge;
    }

  private:
    UniqueId id_;
    Fd listener_;
    HandshakeMessage hello_;
};

}  // namespace

TEST_CASE("strangers at the rendezvous's socket are refused and the ranks find each other", "[strangers]") {
    std::mt19937 random(seed());
    Job job(2);
    job.start(0, {"init", "reduce=1000", "destroy"}, {quiet});
    const UniqueId secret = secret_of(job.id());

    const Fd silent = connect_to(job.id());
    for (const size_t bytes : {size_t(1), size_t(7), sizeof(HandshakeMessage) - 1, sizeof(HandshakeMessage),
                               sizeof(HandshakeMessage) + 1, size_t(60'000)}) {
        std::string noise(bytes, 0);
        for (char& byte : noise) byte = char(random());
        const Fd noisy = connect_and(job.id(), [&](const Fd& socket) {
            return ::send(socket.number(), noise.data(), noise.size(), MSG_NOSIGNAL) == ssize_t(bytes);
        });
        CHECK(!receive(noisy));  // closed
    }
    {
        const Fd hasty = connect_and(job.id(), [&](const Fd& socket) {  // a proof before it was asked for
            const HandshakeMessage nothing = hello_of_version(weft::internal::wire_version);
            return try_to_send(socket, proof_for(secret, nothing, nothing));
        });
        CHECK(!receive(hasty));
    }
    {
        const HandshakeMessage hello = hello_of_version(weft::internal::wire_version);
        HandshakeMessage challenge;
        const Fd ignorant = greet(job.id(), hello, challenge);
        send(ignorant, proof_for(secret_of(job.another_id()), hello, challenge));
        Fd segment;
        CHECK(!receive(ignorant, &segment));
        CHECK(!segment);
    }
    // A whole handshake, recorded; played again it proves nothing, for the challenge is another.
    HandshakeMessage hello = hello_of_version(weft::internal::wire_version), proof;
    {
        HandshakeMessage challenge;
        const Fd knowing = greet(job.id(), hello, challenge);
        CHECK(challenge.mac == weft::internal::challenge_mac(secret, hello.nonce, challenge.nonce));
        proof = proof_for(secret, hello, challenge);
        send(knowing, proof);
        Fd segment;
        const auto welcome = receive(knowing, &segment);
        REQUIRE(welcome);
        CHECK(welcome->kind == HandshakeMessage::welcome);
        CHECK(segment);
    }
    {
        HandshakeMessage challenge;
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

TEST_CASE("a silent client of the rendezvous's socket is dropped; a client that has sent hello has time",
          "[strangers]") {
    Job job(2);
    job.start(0, {"init", "reduce=1000", "destroy"}, {quiet});
    const HandshakeMessage hello = hello_of_version(weft::internal::wire_version);
    HandshakeMessage challenge;
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
    CHECK(welcome->kind == HandshakeMessage::welcome);
    CHECK(segment);
    job.start(1, {"init", "reduce=1000", "destroy"}, {quiet});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

TEST_CASE("a peer with another library version: both sides say both versions", "[strangers]") {
    Job job(2);
    job.start(0, {"init"}, {quiet});
    const HandshakeMessage hello = hello_of_version(WEFT_VERSION_CODE + 1);
    HandshakeMessage challenge;
    const Fd client = greet(job.id(), hello, challenge);
    send(client, proof_for(secret_of(job.id()), hello, challenge));
    Fd segment;
    const auto refusal = receive(client, &segment);
    REQUIRE(refusal);
    CHECK(refusal->kind == HandshakeMessage::refusal);
    CHECK(std::string(refusal->error) == "mismatch.version");
    CHECK(!segment);
    job.finish();
    for (const std::string& sentence : {std::string(refusal->sentence), job.answer(0, "init")}) {
        INFO(sentence);
        CHECK(contains(sentence, "version " + std::to_string(WEFT_VERSION_CODE) + ": all ranks need the same"));
        CHECK(contains(sentence, "version " + std::to_string(WEFT_VERSION_CODE + 1) + " of the Weft library"));
    }
    CHECK(job.answer(0, "init").rfind("9 ", 0) == 0);
}

TEST_CASE("a false leader gets no ranks, and they report its fault", "[strangers]") {
    Job job(2);
    FalseLeader leader(job.id());
    const auto start = [&] { job.start(1, {"init"}, {quiet}); };
    const auto said = [&] {
        const int process = job.processes() - 1;
        job.finish(process);
        return job.answer(process, "init");
    };
    HandshakeMessage refusal;
    refusal.kind = HandshakeMessage::refusal;
    strcpy(refusal.error, "mismatch.version");
    strcpy(refusal.sentence, "process 1 has version 7");
    HandshakeMessage welcome;
    welcome.kind = HandshakeMessage::welcome;

    SECTION("it hangs up") {
        start();
        leader.accept_client();
        CHECK(contains(said(),
                       "6 process " + std::to_string(getpid()) + ", which led the rendezvous of the ranks, ended"));
    }
    SECTION("it says nothing") {
        // It waits in vain whether it has come to knock or not.
        job.start(1, {"init"}, {quiet, "WEFT_INIT_TIMEOUT_MS=200"});
        CHECK(contains(said(), "8 rank 1 waited 200 ms for process " + std::to_string(getpid()) +
                                   ", which leads the rendezvous of the ranks, to answer"));
    }
    SECTION("it sends noise") {
        start();
        const Fd client = leader.accept_client();
        REQUIRE(::send(client.number(), "hello", 5, MSG_NOSIGNAL) == 5);
        CHECK(contains(said(), "[init.leader-lost]"));
    }
    SECTION("it does not know the secret") {
        start();
        const Fd client = leader.accept_client();
        HandshakeMessage challenge = leader.challenge();
        challenge.mac[5] ^= 1;
        send(client, challenge);
        CHECK(contains(said(), "[init.foreign-process]"));
    }
    SECTION("it refuses before it has shown that it knows the secret") {
        start();
        const Fd client = leader.accept_client();
        send(client, refusal);
        const std::string answer = said();
        CHECK(contains(answer, "3 process " + std::to_string(getpid())));
        CHECK(contains(answer, "[internal.state]"));
    }
    SECTION("it refuses with an unknown error id") {
        const std::string id = GENERATE(as<std::string>{}, "", "no.such-id", "mismatch");
        strcpy(refusal.error, id.c_str());
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive(client));
        send(client, refusal);
        const std::string answer = said();
        CHECK(contains(answer, "3 process " + std::to_string(getpid())));
        CHECK(contains(answer, "[internal.state]"));
    }
    SECTION("it is of another version") {
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive(client));
        send(client, refusal);
        const std::string answer = said();
        CHECK(contains(answer, "9 process 1 has version 7"));
        CHECK(contains(answer, "[mismatch.version]"));
    }
    SECTION("it welcomes without a segment") {
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive(client));
        send(client, welcome);
        CHECK(contains(said(), "[internal.state]"));
    }
    SECTION("it passes a file that could shrink under the ranks") {
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive(client));
        const Fd file(memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        REQUIRE(ftruncate(file.number(), 1 << 20) == 0);
        send(client, welcome, file.number());
        CHECK(contains(said(), "is not sealed to its size"));
    }
    SECTION("it passes a segment of another layout") {
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive(client));
        const size_t bytes = GENERATE(1, 4096, 1 << 20);
        auto memory = weft::internal::SharedMemory::create("stranger", bytes);
        REQUIRE(memory);
        send(client, welcome, memory->fd());
        CHECK(contains(said(), "of another version of this library"));
    }
}
