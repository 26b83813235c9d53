// handshake.hpp: how the two ends of a fresh stream socket prove to each other that they know a communicator's secret,
// and what the connection is for. Who called says hello{id name, nonce}; who answers challenge{nonce, mac}; then proof
// {purpose, mac}; then welcome, or refusal{code, sentence}. Every mac covers who speaks, both nonces, both versions and
// the purpose, so nothing recorded can be used again. These layouts are the same in all versions of the library, or
// versions that differ could not tell each other so.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "src/base/result.hpp"
#include "src/base/wire_version.hpp"
#include "src/net/secret.hpp"

namespace weft::internal::net {

// What a connection is for; whose `detail` and `token` mean what, each kind knows.
enum PurposeKind : uint32_t { checkin = 1, control = 2, data = 3 };
struct Purpose {
    uint32_t kind = 0;
    uint32_t detail = 0;
    uint64_t token = 0;
};

// Which process a call is for. If two hosts have an address in common, a call to it may reach another process of the
// job, or the one that calls.
struct TargetProcess {
    uint32_t process = 0;  // its process_mark(); 0: any
    bool root = false;     // the one where the ranks of the communicator check in
};
// Of this process, never 0; another after a fork. Random: two processes of a job have the same by chance alone.
uint32_t process_mark();

struct HandshakeHead {
    enum MessageType : uint32_t { hello = 1, challenge, proof, welcome, refusal };
    static constexpr uint64_t expected_magic = 0x317465'6e'74666577u;  // "weftnet1"
    uint64_t magic = expected_magic;
    uint32_t kind = 0;
    uint32_t version = wire_version;
};
struct HelloMessage {
    HandshakeHead head{.kind = HandshakeHead::hello};
    IdName name{};
    Digest nonce{};
};
struct ChallengeMessage {
    HandshakeHead head{.kind = HandshakeHead::challenge};
    Digest nonce{};  // server_nonce_of()
    Digest mac{};
};
struct ProofMessage {
    HandshakeHead head{.kind = HandshakeHead::proof};
    Purpose purpose;
    Digest mac{};
};
struct RefusalMessage {
    HandshakeHead head{.kind = HandshakeHead::refusal};
    int32_t code = 0;  // weftResult_t
    char sentence[412] = {};
};

// Half of it is random, the rest says who answers.
Digest server_nonce_of(const TargetProcess& answers);
TargetProcess target_of_nonce(const Digest& challenge_nonce);

Digest challenge_proof(const Secret& secret, const HelloMessage& hello, const ChallengeMessage& challenge);
Digest client_proof(const Secret& secret, const HelloMessage& hello, const ChallengeMessage& challenge,
                    const Purpose& purpose);

// A message on its way in or out, as far as it has come.
class PartialMessage {
  public:
    void put(const void* message, size_t bytes);
    Result<bool> write(int socket);               // true: all of it went
    Result<bool> read(int socket, size_t bytes);  // true: `bytes` are there, counted from the last clear()
    void clear() { done_ = bytes_ = 0; }
    size_t done() const { return done_; }
    const std::byte* data() const { return data_; }

  private:
    std::byte data_[sizeof(RefusalMessage)];
    size_t done_ = 0;
    size_t bytes_ = 0;
};

// The end that called. Non-blocking; the owner polls for events().
class ClientHandshake {
  public:
    ClientHandshake(const Identity& identity, const Purpose& purpose, const TargetProcess& target = {});
    // True once welcome. Else why not: weftMismatch (another version; proven, so final) or weftRemoteError.
    Result<bool> advance(int socket);
    short events() const;
    bool proven() const { return proven_; }  // the other end knows the secret
    // The other end said what it thinks, or is not the one that is meant; else a failure is a connection that ended.
    bool answered() const { return answered_; }
    // It speaks our language and does not know the communicator.
    bool unknown() const { return unknown_; }
    // It knows the secret and is not the process that is meant. It was not told the purpose.
    bool misdirected() const { return misdirected_; }

  private:
    enum class Stage { hello, challenge, proof, verdict, done };
    Result<bool> read_answer(int socket, HandshakeHead::MessageType expected, size_t bytes);
    Status check_target();
    Identity identity_;
    Purpose purpose_;
    TargetProcess target_;
    HelloMessage hello_;
    ChallengeMessage challenge_;
    PartialMessage message_;
    Stage stage_ = Stage::hello;
    bool proven_ = false;
    bool misdirected_ = false;
    bool answered_ = false;
    bool unknown_ = false;
};

// The end that was called. Whoever breaks the rules learns nothing; who is refused for a reason is told it.
class ServerHandshake {
  public:
    using Find = std::function<const Identity*(const IdName&)>;
    // Whether the ranks of that communicator check in at this process.
    using Roots = std::function<bool(const IdName&)>;
    enum class Outcome {
        pending,
        welcome,
        refused,   // told why: let it read that before the socket is closed
        outdated,  // refused for its version, having proved the secret: the ranks here should know
        noise,     // not Weft's handshake
        impostor,  // knows the name and not the secret
        broken     // the connection ended first
    };
    Outcome advance(int socket, const Find& find, const Roots& roots = {});
    short events() const;
    bool silent() const { return stage_ == Stage::hello; }
    const IdName& name() const { return hello_.name; }
    const Purpose& purpose() const { return purpose_; }
    const std::string& sentence() const { return sentence_; }

  private:
    enum class Stage { hello, challenge, proof, verdict };
    Outcome refuse(int socket, weftResult_t code, std::string sentence, Outcome outcome);
    Outcome say(int socket);
    Identity identity_;
    HelloMessage hello_;
    ChallengeMessage challenge_;
    Purpose purpose_;
    PartialMessage message_;
    Stage stage_ = Stage::hello;
    Outcome verdict_ = Outcome::welcome;
    std::string sentence_;
};

}  // namespace weft::internal::net
