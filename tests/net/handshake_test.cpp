// handshake_test.cpp: the proofs of the two ends, message by message; recordings, wrong secrets, other versions, and
// streams cut anywhere.
#include "src/net/handshake.hpp"

#include <cstring>
#include <random>

#include "tests/amount.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using net::ClientHandshake;
using net::Identity;
using net::IdName;
using net::Purpose;
using net::ServerHandshake;
using Ending = ServerHandshake::Outcome;

namespace {

ServerHandshake::Find knows(const Identity& identity) {
    return [&identity](const IdName& name) { return name == identity.name ? &identity : nullptr; };
}

const Purpose handshake_purpose{net::data, 3, 0x123456789abcdef0u};

struct End {
    Ending answer = Ending::pending;
    std::optional<Result<bool>> caller;
};

// Both ends until each has come to an end; `caller` was made with the identity that it proves.
End shake(ClientHandshake& caller, ServerHandshake& answer, const Identity& known,
          const ServerHandshake::Roots& roots = {}) {
    auto [near, far] = socket_pair();
    End end;
    for (int step = 0; step < 100; ++step) {
        if (!end.caller) {
            auto done = caller.advance(near.number());
            if (!done || *done) end.caller.emplace(std::move(done));
            if (end.caller && !end.caller->ok()) near.reset();
        }
        if (end.answer == Ending::pending) {
            end.answer = answer.advance(far.number(), knows(known), roots);
            if (end.answer != Ending::pending && end.answer != Ending::welcome) far.reset();
        }
    }
    return end;
}

// A caller by hand, to say what ClientHandshake never would.
struct HandCaller {
    Fd near, far;
    ServerHandshake answer;
    const Identity& identity;
    net::HelloMessage hello;

    explicit HandCaller(const Identity& who) : identity(who) {
        std::tie(near, far) = socket_pair();
        hello.name = identity.name;
        net::random_bytes(hello.nonce.data(), hello.nonce.size());
    }
    Ending step() { return answer.advance(far.number(), knows(identity)); }
    Ending say(const void* message, size_t bytes) {
        write_all(near, message, bytes);
        return step();
    }
    net::ChallengeMessage challenge() {
        net::ChallengeMessage message;
        REQUIRE(recv(near.number(), &message, sizeof message, 0) == ssize_t(sizeof message));
        return message;
    }
    net::ProofMessage proof(const net::ChallengeMessage& challenge) const {
        net::ProofMessage message;
        message.purpose = handshake_purpose;
        message.mac = net::client_proof(identity.secret, hello, challenge, handshake_purpose);
        return message;
    }
};

// Reads the caller's hello and answers it as a newer build does.
void challenge_by_newer_build(const Fd& far, const Identity& identity) {
    net::HelloMessage hello;
    REQUIRE(recv(far.number(), &hello, sizeof hello, 0) == ssize_t(sizeof hello));
    net::ChallengeMessage challenge;
    challenge.head.version = WEFT_VERSION_CODE + 1;
    challenge.mac = net::challenge_proof(identity.secret, hello, challenge);
    write_all(far, &challenge, sizeof challenge);
}

}  // namespace

TEST_CASE("two ends that know the secret connect, and the purpose arrives", "[handshake]") {
    const Identity identity = fresh_identity();
    ClientHandshake caller(identity, handshake_purpose);
    ServerHandshake answer;
    const End end = shake(caller, answer, identity);
    REQUIRE(end.caller);
    CHECK((end.caller->ok() && **end.caller));
    CHECK(end.answer == Ending::welcome);
    CHECK(answer.name() == identity.name);
    CHECK(answer.purpose().kind == handshake_purpose.kind);
    CHECK(answer.purpose().detail == handshake_purpose.detail);
    CHECK(answer.purpose().token == handshake_purpose.token);
}

TEST_CASE("a caller that reaches the wrong process reports that, and sends no purpose", "[handshake]") {
    const Identity identity = fresh_identity();
    REQUIRE(net::process_mark() != 0);
    const uint32_t here = net::process_mark(), elsewhere = here == 1 ? 2 : here - 1;
    struct Case {
        net::TargetProcess target;
        bool roots;
        bool meant;
    };
    for (const Case& each :
         {Case{{0, false}, false, true}, Case{{here, false}, false, true}, Case{{elsewhere, false}, true, false},
          Case{{0, true}, true, true}, Case{{0, true}, false, false}, Case{{here, true}, false, false}}) {
        INFO(each.target.process << " " << each.target.root << " " << each.roots);
        ClientHandshake caller(identity, handshake_purpose, each.target);
        ServerHandshake answer;
        const End end = shake(caller, answer, identity, [&](const IdName& name) {
            CHECK(name == identity.name);
            return each.roots;
        });
        REQUIRE(end.caller);
        CHECK(end.caller->ok() == each.meant);
        CHECK(caller.misdirected() == !each.meant);
        CHECK(end.answer == (each.meant ? Ending::welcome : Ending::broken));
        CHECK(answer.purpose().token == (each.meant ? handshake_purpose.token : 0));
        if (!each.meant) CHECK(end.caller->status().code() == weftRemoteError);
    }
    // Another build may say anything there: its version alone identifies it.
    auto [near, far] = socket_pair();
    ClientHandshake caller(identity, handshake_purpose, {elsewhere, true});
    REQUIRE(caller.advance(near.number()).ok());
    challenge_by_newer_build(far, identity);
    CHECK(caller.advance(near.number()).ok());
    CHECK(caller.proven());
    CHECK_FALSE(caller.misdirected());
}

TEST_CASE("challenges are fresh, and name the answering process", "[handshake]") {
    const net::Digest one = net::server_nonce_of({77, true}), other = net::server_nonce_of({77, true});
    CHECK(one != other);
    CHECK(net::target_of_nonce(one).process == 77);
    CHECK(net::target_of_nonce(one).root);
    CHECK_FALSE(net::target_of_nonce(net::server_nonce_of({77, false})).root);
}

TEST_CASE("an identity's name does not depend on chance and differs between secrets", "[handshake]") {
    const Identity one = fresh_identity(), other = fresh_identity();
    CHECK(Identity::of(one.secret).name == one.name);
    CHECK(one.name != other.name);
    CHECK(memcmp(one.name.data(), one.secret.key.data(), one.name.size()) != 0);
}

TEST_CASE("a wrong secret is found by the caller, and a caller's wrong one by the answering process", "[handshake]") {
    const Identity identity = fresh_identity();
    Identity wrong = fresh_identity();
    wrong.name = identity.name;
    ClientHandshake caller(wrong, handshake_purpose);
    ServerHandshake answer;
    const End end = shake(caller, answer, identity);
    REQUIRE((end.caller && !end.caller->ok()));
    CHECK(end.caller->status().code() == weftRemoteError);
    CHECK_THAT(end.caller->status().sentence(), Catch::Contains("does not know the secret"));
    CHECK_FALSE(caller.proven());
    CHECK(end.answer == Ending::broken);  // the caller did not go on

    HandCaller forger(identity);
    CHECK(forger.say(&forger.hello, sizeof forger.hello) == Ending::pending);
    net::ProofMessage proof = forger.proof(forger.challenge());
    proof.mac = net::client_proof(wrong.secret, forger.hello, {}, handshake_purpose);
    CHECK(forger.say(&proof, sizeof proof) == Ending::impostor);
}

TEST_CASE("an unknown id is refused with a sentence", "[handshake]") {
    const Identity identity = fresh_identity(), other = fresh_identity();
    ClientHandshake caller(other, handshake_purpose);
    ServerHandshake answer;
    const End end = shake(caller, answer, identity);
    CHECK(end.answer == Ending::refused);
    REQUIRE((end.caller && !end.caller->ok()));
    CHECK(end.caller->status().code() == weftRemoteError);
    CHECK_THAT(end.caller->status().sentence(), Catch::Contains("does not know this unique id"));
}

TEST_CASE("a recorded handshake proves nothing when it is played again", "[handshake]") {
    const Identity identity = fresh_identity();
    HandCaller first(identity);
    CHECK(first.say(&first.hello, sizeof first.hello) == Ending::pending);
    const net::ProofMessage proof = first.proof(first.challenge());
    CHECK(first.say(&proof, sizeof proof) == Ending::welcome);

    HandCaller again(identity);
    CHECK(again.say(&first.hello, sizeof first.hello) == Ending::pending);
    CHECK(again.say(&proof, sizeof proof) == Ending::impostor);

    // Nor does a challenge that was recorded, to a caller; nor its own proof, sent back to it.
    auto [near, far] = socket_pair();
    ClientHandshake caller(identity, handshake_purpose);
    REQUIRE(caller.advance(near.number()).ok());
    net::ChallengeMessage replayed;
    net::HelloMessage old;
    replayed.mac = net::challenge_proof(identity.secret, old, replayed);
    write_all(far, &replayed, sizeof replayed);
    CHECK_FALSE(caller.advance(near.number()).ok());
}

TEST_CASE("a purpose that was changed on the way is no proof", "[handshake]") {
    const Identity identity = fresh_identity();
    for (int part = 0; part < 3; ++part) {
        HandCaller caller(identity);
        CHECK(caller.say(&caller.hello, sizeof caller.hello) == Ending::pending);
        net::ProofMessage proof = caller.proof(caller.challenge());
        if (part == 0) proof.purpose.kind = net::control;
        if (part == 1) ++proof.purpose.detail;
        if (part == 2) ++proof.purpose.token;
        CHECK(caller.say(&proof, sizeof proof) == Ending::impostor);
    }
}

TEST_CASE("with another library version both ends name both versions, if the other proves the secret", "[handshake]") {
    const Identity identity = fresh_identity();
    const std::string here = fmt::format("version {}", WEFT_VERSION_CODE);
    const std::string there = fmt::format("version {}", WEFT_VERSION_CODE + 1);

    HandCaller newer(identity);
    newer.hello.head.version = WEFT_VERSION_CODE + 1;
    CHECK(newer.say(&newer.hello, sizeof newer.hello) == Ending::pending);
    const net::ProofMessage proof = newer.proof(newer.challenge());
    CHECK(newer.say(&proof, sizeof proof) == Ending::outdated);
    CHECK_THAT(newer.answer.sentence(), Catch::Contains(here) && Catch::Contains(there));
    net::RefusalMessage refusal;
    REQUIRE(recv(newer.near.number(), &refusal, sizeof refusal, 0) == ssize_t(sizeof refusal));
    CHECK(refusal.code == weftMismatch);
    CHECK_THAT(std::string(refusal.sentence), Catch::Contains(here) && Catch::Contains(there));

    HandCaller liar(identity);
    liar.hello.head.version = WEFT_VERSION_CODE + 1;
    CHECK(liar.say(&liar.hello, sizeof liar.hello) == Ending::pending);
    const net::ProofMessage nothing;
    CHECK(liar.say(&nothing, sizeof nothing) == Ending::impostor);

    // A newer one answers, and refuses or lets us in.
    for (const bool lenient : {false, true}) {
        auto [near, far] = socket_pair();
        ClientHandshake caller(identity, handshake_purpose);
        REQUIRE(caller.advance(near.number()).ok());
        challenge_by_newer_build(far, identity);
        REQUIRE(caller.advance(near.number()).ok());
        net::RefusalMessage told;
        told.code = weftMismatch;
        strcpy(told.sentence, "version 1 and version 2\n\033[2J");
        const net::HandshakeHead welcome{.kind = net::HandshakeHead::welcome};
        if (lenient)
            write_all(far, &welcome, sizeof welcome);
        else
            write_all(far, &told, sizeof told);
        auto end = caller.advance(near.number());
        REQUIRE_FALSE(end.ok());
        CHECK(end.status().code() == weftMismatch);
        CHECK_THAT(end.status().sentence(), Catch::Contains("version"));
        CHECK_THAT(end.status().sentence(), !Catch::Contains("\n") && !Catch::Contains("\033"));
        CHECK(caller.proven());
    }
}

TEST_CASE("another build of the same version says so, and not that messages are damaged", "[handshake]") {
    const Identity identity = fresh_identity();
    HandCaller other(identity);
    other.hello.head.version = wire_version + (1u << wire_version_bits);
    CHECK(other.say(&other.hello, sizeof other.hello) == Ending::pending);
    const net::ProofMessage proof = other.proof(other.challenge());
    CHECK(other.say(&proof, sizeof proof) == Ending::outdated);
    CHECK(other.answer.sentence() ==
          fmt::format(
              "here is one build of version {} of the Weft library and there another, which lays out its messages "
              "differently (revisions {} and {}): all ranks need the same",
              WEFT_VERSION_CODE, wire_revision, wire_revision + 1));
}

TEST_CASE("noise is noticed at the first message, cut streams when they end", "[handshake]") {
    const Identity identity = fresh_identity();
    std::mt19937 random(seed());
    for (int round = 0; round < 200; ++round) {
        HandCaller caller(identity);
        std::string noise(16 + random() % 200, 0);
        for (char& byte : noise) byte = char(random());
        CHECK(caller.say(noise.data(), noise.size()) == Ending::noise);
    }
    for (size_t cut = 0; cut < sizeof(net::HelloMessage) + sizeof(net::ProofMessage); ++cut) {
        HandCaller caller(identity);
        const size_t first = std::min(cut, sizeof caller.hello);
        Ending outcome = caller.step();
        if (first > 0) outcome = caller.say(&caller.hello, first);
        CHECK(outcome == Ending::pending);
        CHECK(caller.answer.silent() == (first < sizeof caller.hello));
        if (cut >= sizeof caller.hello) {
            const net::ProofMessage proof = caller.proof(caller.challenge());
            if (cut > first) CHECK(caller.say(&proof, cut - first) == Ending::pending);
        }
        caller.near.reset();
        CHECK(caller.step() == Ending::broken);
    }
    HandCaller hasty(identity);
    const net::ProofMessage proof;
    CHECK(hasty.say(&proof, sizeof proof) == Ending::noise);
}

TEST_CASE("a handshake works byte by byte", "[handshake]") {
    const Identity identity = fresh_identity();
    HandCaller caller(identity);
    const auto drip = [&](const void* message, size_t bytes) {
        Ending outcome = Ending::pending;
        for (size_t i = 0; i < bytes; ++i) {
            CHECK(outcome == Ending::pending);
            outcome = caller.say(static_cast<const char*>(message) + i, 1);
        }
        return outcome;
    };
    CHECK(drip(&caller.hello, sizeof caller.hello) == Ending::pending);
    const net::ProofMessage proof = caller.proof(caller.challenge());
    CHECK(drip(&proof, sizeof proof) == Ending::welcome);
}
