// strangers_test.cpp: strangers at the rendezvous's socket: noise, silence, recordings, another library version, a
// false leader. None of them hurts ranks that know the secret, and none becomes a rank.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <random>

#include "src/base/shared_memory.hpp"
#include "src/net/descriptors.hpp"
#include "src/net/handshake.hpp"
#include "src/rendezvous/unique_id.hpp"
#include "tests/amount.hpp"
#include "tests/faults/job.hpp"

using namespace weft::internal::test;
using weft::internal::Fd;
using weft::internal::UniqueId;
using namespace weft::internal::net;

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
    Fd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const bool connected = eventually([&, where = &address, bytes = length] {
        return connect(socket_fd.number(), reinterpret_cast<const sockaddr*>(where), bytes) == 0;
    });
    REQUIRE(connected);
    return socket_fd;
}

// The next message, or nothing if the other end closed first.
template <class Message>
std::optional<Message> receive(const Fd& socket) {
    Message message;
    for (size_t done = 0; done < sizeof message;) {
        pollfd wait{socket.number(), POLLIN, 0};
        REQUIRE(poll(&wait, 1, 60'000) == 1);
        const ssize_t got = recv(socket.number(), reinterpret_cast<char*>(&message) + done, sizeof message - done, 0);
        if (got <= 0) return {};
        done += size_t(got);
    }
    return message;
}
bool closed(const Fd& socket) { return !receive<char>(socket); }

// The segment that the leader passes after its welcome; empty: it does not.
Fd receive_segment(const Fd& socket) {
    const auto answer = receive<HandshakeHead>(socket);
    if (!answer || answer->kind != HandshakeHead::welcome) return {};
    pollfd wait{socket.number(), POLLIN, 0};
    REQUIRE(poll(&wait, 1, 60'000) == 1);
    auto passed = receive_descriptors(socket.number());
    return passed && *passed && !(*passed)->empty() ? std::move((**passed)[0]) : Fd();
}

template <class Message>
bool try_to_send(const Fd& socket, const Message& message) {
    return ::send(socket.number(), &message, sizeof message, MSG_NOSIGNAL) == ssize_t(sizeof message);
}
template <class Message>
void send(const Fd& socket, const Message& message) {
    CHECK(try_to_send(socket, message));
}

// A client that is slow to speak is refused: then once more.
template <class Speak>
Fd connect_and(const std::string& id, Speak speak) {
    Fd socket;
    REQUIRE(eventually([&] { return speak(socket = connect_to(id)); }));
    return socket;
}
Fd greet(const std::string& id, const HelloMessage& hello, ChallengeMessage& challenge) {
    return connect_and(id, [&](const Fd& socket) {
        const auto answer = try_to_send(socket, hello) ? receive<ChallengeMessage>(socket) : std::nullopt;
        if (answer) challenge = *answer;
        return answer.has_value();
    });
}

HelloMessage hello_of(const std::string& id, uint32_t version = weft::internal::wire_version) {
    HelloMessage hello;
    hello.head.version = version;
    hello.name = UniqueId::read(weft::unique_id_from_text(id))->identity().name;
    random_bytes(hello.nonce.data(), hello.nonce.size());
    return hello;
}
ProofMessage proof_for(const UniqueId& id, const HelloMessage& hello, const ChallengeMessage& challenge) {
    ProofMessage proof;
    proof.purpose.kind = segment;
    proof.mac = client_proof(id.identity().secret, hello, challenge, proof.purpose);
    return proof;
}

UniqueId secret_of(const std::string& id) { return *UniqueId::read(weft::unique_id_from_text(id)); }

// Binds the rendezvous's name before any rank comes.
class FalseLeader {
  public:
    explicit FalseLeader(const std::string& id) : id_(secret_of(id)) {
        const auto [address, length] = address_of(id);
        listener_ = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
        REQUIRE(listen(listener_.number(), 16) == 0);
    }
    Fd accept_client() {
        Fd client(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
        const auto hello = receive<HelloMessage>(client);
        REQUIRE(hello);
        hello_ = *hello;
        return client;
    }
    ChallengeMessage challenge() const {
        ChallengeMessage challenge;
        challenge.nonce = server_nonce_of({process_mark(), false});
        challenge.mac = challenge_proof(id_.identity().secret, hello_, challenge);
        return challenge;
    }

  private:
    UniqueId id_;
    Fd listener_;
    HelloMessage hello_;
};

}  // namespace

TEST_CASE("strangers at the rendezvous's socket are refused and the ranks find each other", "[strangers]") {
    std::mt19937 random(seed());
    Job job(2);
    job.start(0, {"init", "reduce=1000", "destroy"}, {quiet});
    const UniqueId secret = secret_of(job.id());

    const Fd silent = connect_to(job.id());
    const auto noisy = [&](size_t bytes) {
        std::string noise(bytes, 0);
        for (char& byte : noise) byte = char(random());
        return connect_and(job.id(), [&](const Fd& socket) {
            return ::send(socket.number(), noise.data(), noise.size(), MSG_NOSIGNAL) == ssize_t(bytes);
        });
    };
    std::vector<Fd> cut;  // less than a head: closed after a while
    for (const size_t bytes : {size_t(1), size_t(7), sizeof(HandshakeHead) - 1}) cut.push_back(noisy(bytes));
    for (const size_t bytes : {sizeof(HandshakeHead), sizeof(HelloMessage) + 1, size_t(60'000)})
        CHECK(closed(noisy(bytes)));
    {
        const HelloMessage nothing = hello_of(job.id());
        const Fd hasty = connect_and(job.id(), [&](const Fd& socket) {  // a proof before the challenge
            return try_to_send(socket, proof_for(secret, nothing, {}));
        });
        CHECK(closed(hasty));
    }
    {
        const HelloMessage hello = hello_of(job.id());
        ChallengeMessage challenge;
        const Fd ignorant = greet(job.id(), hello, challenge);
        send(ignorant, proof_for(secret_of(job.another_id()), hello, challenge));
        CHECK(closed(ignorant));
    }
    // A recorded handshake cannot be replayed, since the challenge is another.
    const HelloMessage hello = hello_of(job.id());
    ProofMessage proof;
    {
        ChallengeMessage challenge;
        const Fd knowing = greet(job.id(), hello, challenge);
        CHECK(challenge.mac == challenge_proof(secret.identity().secret, hello, challenge));
        proof = proof_for(secret, hello, challenge);
        send(knowing, proof);
        CHECK(receive_segment(knowing));
    }
    {
        ChallengeMessage challenge;
        const Fd replaying = greet(job.id(), hello, challenge);
        send(replaying, proof);
        CHECK(closed(replaying));
    }
    for (const Fd& each : cut) CHECK(closed(each));
    job.start(1, {"init", "reduce=1000", "destroy"}, {quiet});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

TEST_CASE("a silent client of the rendezvous's socket is dropped; a client that has sent hello has time",
          "[strangers]") {
    Job job(2);
    job.start(0, {"init", "reduce=1000", "destroy"}, {quiet});
    const HelloMessage hello = hello_of(job.id());
    ChallengeMessage challenge;
    const Fd greeted = greet(job.id(), hello, challenge);
    std::vector<Fd> silent;
    for (int count = 0; count < 10; ++count) silent.push_back(connect_to(job.id()));
    for (const Fd& each : silent) CHECK(closed(each));
    pollfd state{greeted.number(), POLLIN, 0};
    CHECK(poll(&state, 1, 0) == 0);  // still open, although it is older than the dropped ones
    send(greeted, proof_for(secret_of(job.id()), hello, challenge));
    CHECK(receive_segment(greeted));
    job.start(1, {"init", "reduce=1000", "destroy"}, {quiet});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

TEST_CASE("a client with another library version: both sides name both versions", "[strangers]") {
    Job job(2);
    job.start(0, {"init"}, {quiet});
    const HelloMessage hello = hello_of(job.id(), WEFT_VERSION_CODE + 1);
    ChallengeMessage challenge;
    const Fd client = greet(job.id(), hello, challenge);
    send(client, proof_for(secret_of(job.id()), hello, challenge));
    const auto refusal = receive<RefusalMessage>(client);
    REQUIRE(refusal);
    CHECK(refusal->head.kind == HandshakeHead::refusal);
    CHECK(std::string(refusal->error) == "mismatch.version");
    CHECK(closed(client));  // without a segment
    job.finish();
    for (const std::string& sentence : {std::string(refusal->sentence), job.answer(0, "init")}) {
        INFO(sentence);
        CHECK(contains(sentence, "version " + std::to_string(WEFT_VERSION_CODE)));
        CHECK(contains(sentence, "version " + std::to_string(WEFT_VERSION_CODE + 1)));
    }
    CHECK(contains(job.answer(0, "init"), "[mismatch.version]"));
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
    RefusalMessage refusal;
    strcpy(refusal.error, "mismatch.version");
    strcpy(refusal.sentence, "process 1 has version 7");
    const HandshakeHead welcome{.kind = HandshakeHead::welcome};

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
        REQUIRE(::send(client.number(), "hello, who is there?", 20, MSG_NOSIGNAL) == 20);
        CHECK(contains(said(), "[init.leader-lost]"));
    }
    SECTION("it does not know the secret") {
        start();
        const Fd client = leader.accept_client();
        ChallengeMessage challenge = leader.challenge();
        challenge.mac[5] ^= 1;
        send(client, challenge);
        CHECK(contains(said(), "[init.foreign-process]"));
    }
    SECTION("it refuses before it has proved the secret") {
        start();
        const Fd client = leader.accept_client();
        send(client, refusal);
        CHECK(contains(said(), "[init.leader-lost]"));
    }
    SECTION("it refuses with an unknown error id") {
        const std::string id = GENERATE(as<std::string>{}, "", "no.such-id", "mismatch");
        strcpy(refusal.error, id.c_str());
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive<ProofMessage>(client));
        send(client, refusal);
        CHECK(contains(said(), "[init.leader-lost]"));
    }
    SECTION("it is of another version") {
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive<ProofMessage>(client));
        send(client, refusal);
        const std::string answer = said();
        CHECK(contains(answer, "process 1 has version 7"));
        CHECK(contains(answer, "[mismatch.version]"));
    }
    SECTION("it welcomes without a segment") {
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive<ProofMessage>(client));
        send(client, welcome);
        send(client, 'x');
        CHECK(contains(said(), "[internal.state]"));
    }
    SECTION("it passes a file that could shrink under the ranks") {
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive<ProofMessage>(client));
        const Fd file(memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        REQUIRE(ftruncate(file.number(), 1 << 20) == 0);
        send(client, welcome);
        CHECK(*send_descriptors(client.number(), std::vector<int>{file.number()}));
        CHECK(contains(said(), "is not sealed to its size"));
    }
    SECTION("it passes a segment of another layout") {
        start();
        const Fd client = leader.accept_client();
        send(client, leader.challenge());
        REQUIRE(receive<ProofMessage>(client));
        const size_t bytes = GENERATE(1, 4096, 1 << 20);
        auto memory = weft::internal::SharedMemory::create("stranger", bytes);
        REQUIRE(memory);
        send(client, welcome);
        CHECK(*send_descriptors(client.number(), std::vector<int>{memory->fd()}));
        CHECK(contains(said(), "of another version of this library"));
    }
}
