#include "src/net/handshake.hpp"

#include <poll.h>

#include <cassert>
#include <cstring>

#include "src/base/process_token.hpp"
#include "src/net/socket.hpp"

namespace weft::internal::net {

namespace {

bool is_head(const std::byte* data, HandshakeHead::MessageType kind) {
    HandshakeHead head;
    memcpy(&head, data, sizeof head);
    return head.magic == HandshakeHead::expected_magic && head.kind == kind;
}

// Everything a proof covers, laid out without gaps.
Digest mac_of(const Secret& secret, const char (&role)[8], const HelloMessage& hello, const ChallengeMessage& challenge,
              const Purpose& purpose) {
    unsigned char text[sizeof role + 2 * sizeof(uint32_t) + sizeof(IdName) + 2 * sizeof(Digest) + sizeof(Purpose)];
    unsigned char* at = text;
    const auto put = [&](const void* from, size_t bytes) {
        memcpy(at, from, bytes);
        at += bytes;
    };
    static_assert(sizeof(Purpose) == 16);
    put(role, sizeof role);
    put(&hello.head.version, sizeof(uint32_t));
    put(&challenge.head.version, sizeof(uint32_t));
    put(hello.name.data(), sizeof(IdName));
    put(hello.nonce.data(), sizeof(Digest));
    put(challenge.nonce.data(), sizeof(Digest));
    put(&purpose, sizeof purpose);
    assert(at == text + sizeof text);
    return secret.prove(text, sizeof text);
}

// Text of an unauthenticated process, made fit for a log: one line of printable characters.
std::string printable(const char* text, size_t bytes) {
    std::string clean;
    for (size_t i = 0; i < bytes && text[i] != 0; ++i) clean += text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    return clean;
}

std::string version_sentence(uint32_t there) { return wire_mismatch("here is", wire_version, "there", there); }

}  // namespace

uint32_t process_mark() {
    const auto mark = uint32_t(process_token());
    return mark == 0 ? 1 : mark;
}

namespace {
struct ChallengeNonce {
    unsigned char random[16] = {};
    uint32_t process = 0;
    uint32_t root = 0;
    uint64_t unused = 0;
};
static_assert(sizeof(ChallengeNonce) == sizeof(Digest));
}  // namespace

Digest server_nonce_of(const TargetProcess& answers) {
    ChallengeNonce content{.process = answers.process, .root = answers.root};
    random_bytes(content.random, sizeof content.random);
    Digest nonce;
    memcpy(nonce.data(), &content, sizeof content);
    return nonce;
}

TargetProcess target_of_nonce(const Digest& challenge_nonce) {
    ChallengeNonce content;
    memcpy(&content, challenge_nonce.data(), sizeof content);
    return {content.process, content.root != 0};
}

Digest challenge_proof(const Secret& secret, const HelloMessage& hello, const ChallengeMessage& challenge) {
    return mac_of(secret, "answers", hello, challenge, {});
}
Digest client_proof(const Secret& secret, const HelloMessage& hello, const ChallengeMessage& challenge,
                    const Purpose& purpose) {
    return mac_of(secret, "called ", hello, challenge, purpose);
}

ClientHandshake::ClientHandshake(const Identity& identity, const Purpose& purpose, const TargetProcess& target)
    : identity_(identity), purpose_(purpose), target_(target) {
    hello_.name = identity.name;
    random_bytes(hello_.nonce.data(), hello_.nonce.size());
    message_.put(&hello_, sizeof hello_);
}

short ClientHandshake::events() const { return stage_ == Stage::hello || stage_ == Stage::proof ? POLLOUT : POLLIN; }

// True: the expected answer is in message_, whole. A refusal is a failure.
Result<bool> ClientHandshake::read_answer(int socket, HandshakeHead::MessageType expected, size_t bytes) {
    auto there = message_.read(socket, sizeof(HandshakeHead));
    if (!there || !*there) return there;
    if (is_head(message_.data(), expected)) return message_.read(socket, bytes);
    answered_ = true;
    if (!is_head(message_.data(), HandshakeHead::refusal))
        return fail(error::tcp_stranger, "the process that listens there does not speak Weft's handshake");
    there = message_.read(socket, sizeof(RefusalMessage));
    if (!there || !*there) return there;
    RefusalMessage refusal;
    memcpy(&refusal, message_.data(), sizeof refusal);
    const auto error = error_named(printable(refusal.error, sizeof refusal.error));
    unknown_ = !proven_ && error == error::init_id_unknown;
    // An end that has not proved the secret chooses no error of this rank.
    return fail(proven_ ? error.value_or(error::tcp_turned_away) : error::tcp_turned_away, "it refuses: {}",
                printable(refusal.sentence, sizeof refusal.sentence));
}

// Other builds have another meaning there; the verdict reports them.
Status ClientHandshake::check_target() {
    if (challenge_.head.version != wire_version) return ok();
    const TargetProcess there = target_of_nonce(challenge_.nonce);
    misdirected_ = (target_.process != 0 && target_.process != there.process) || (target_.root && !there.root);
    if (!misdirected_) return ok();
    answered_ = true;
    return fail(error::tcp_stranger, "{}",
                there.process == process_mark() ? "this process itself answers there"
                                                : "another process of the job answers there");
}

Result<bool> ClientHandshake::advance(int socket) {
    if (stage_ == Stage::hello) {
        auto sent = message_.write(socket);
        if (!sent || !*sent) return sent;
        message_.clear();
        stage_ = Stage::challenge;
    }
    if (stage_ == Stage::challenge) {
        auto there = read_answer(socket, HandshakeHead::challenge, sizeof challenge_);
        if (!there || !*there) return there;
        memcpy(&challenge_, message_.data(), sizeof challenge_);
        answered_ = !equal_digests(challenge_.mac, challenge_proof(identity_.secret, hello_, challenge_));
        if (answered_)
            return fail(error::tcp_secret, "the process that listens there does not know the secret of the unique id");
        WEFT_TRY(check_target());
        proven_ = true;
        ProofMessage proof;
        proof.purpose = purpose_;
        proof.mac = client_proof(identity_.secret, hello_, challenge_, purpose_);
        message_.put(&proof, sizeof proof);
        stage_ = Stage::proof;
    }
    if (stage_ == Stage::proof) {
        auto sent = message_.write(socket);
        if (!sent || !*sent) return sent;
        message_.clear();
        stage_ = Stage::verdict;
    }
    if (stage_ == Stage::verdict) {
        auto there = read_answer(socket, HandshakeHead::welcome, sizeof(HandshakeHead));
        if (!there || !*there) return there;
        if (challenge_.head.version != wire_version)
            return fail(error::mismatch_version, "{}", version_sentence(challenge_.head.version));
        stage_ = Stage::done;
    }
    return true;
}

short ServerHandshake::events() const {
    return stage_ == Stage::challenge || stage_ == Stage::verdict ? POLLOUT : POLLIN;
}

ServerHandshake::Outcome ServerHandshake::say(int socket) {
    auto sent = message_.write(socket);
    if (!sent) return Outcome::broken;
    return *sent ? verdict_ : Outcome::pending;
}

ServerHandshake::Outcome ServerHandshake::refuse(int socket, ErrorId error, std::string sentence, Outcome outcome) {
    RefusalMessage refusal;
    std::string_view(row_of(error).id).copy(refusal.error, sizeof refusal.error - 1);
    sentence.copy(refusal.sentence, sizeof refusal.sentence - 1);
    sentence_ = std::move(sentence);
    message_.put(&refusal, sizeof refusal);
    stage_ = Stage::verdict;
    verdict_ = outcome;
    return say(socket);
}

ServerHandshake::Outcome ServerHandshake::advance(int socket, const Find& find, const Roots& roots) {
    if (stage_ == Stage::hello) {
        auto there = message_.read(socket, sizeof(HandshakeHead));
        if (!there) return Outcome::broken;
        if (!*there) return Outcome::pending;
        if (!is_head(message_.data(), HandshakeHead::hello)) return Outcome::noise;
        there = message_.read(socket, sizeof hello_);
        if (!there) return Outcome::broken;
        if (!*there) return Outcome::pending;
        memcpy(&hello_, message_.data(), sizeof hello_);
        const Identity* identity = find(hello_.name);
        if (identity == nullptr)
            return refuse(socket, error::init_id_unknown,
                          "this process does not know this unique id (of an earlier job, or of another?)",
                          Outcome::refused);
        identity_ = *identity;
        challenge_.nonce = server_nonce_of({process_mark(), roots && roots(hello_.name)});
        challenge_.mac = challenge_proof(identity_.secret, hello_, challenge_);
        message_.put(&challenge_, sizeof challenge_);
        stage_ = Stage::challenge;
    }
    if (stage_ == Stage::challenge) {
        auto sent = message_.write(socket);
        if (!sent) return Outcome::broken;
        if (!*sent) return Outcome::pending;
        message_.clear();
        stage_ = Stage::proof;
    }
    if (stage_ == Stage::proof) {
        ProofMessage proof;
        auto there = message_.read(socket, sizeof proof);
        if (!there) return Outcome::broken;
        if (!*there) return Outcome::pending;
        if (!is_head(message_.data(), HandshakeHead::proof)) return Outcome::noise;
        memcpy(&proof, message_.data(), sizeof proof);
        if (!equal_digests(proof.mac, client_proof(identity_.secret, hello_, challenge_, proof.purpose)))
            return Outcome::impostor;
        purpose_ = proof.purpose;
        if (hello_.head.version != wire_version)
            return refuse(socket, error::mismatch_version, version_sentence(hello_.head.version), Outcome::outdated);
        if (find(hello_.name) == nullptr)
            return refuse(socket, error::tcp_turned_away, "the communicator has ended in this process",
                          Outcome::refused);
        const HandshakeHead welcome{.kind = HandshakeHead::welcome};
        message_.put(&welcome, sizeof welcome);
        stage_ = Stage::verdict;
    }
    return say(socket);
}

}  // namespace weft::internal::net
