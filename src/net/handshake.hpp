// handshake.hpp: the authenticated handshake over a fresh stream socket. Both ends prove that they know a
// communicator's secret, and the client says what the connection is for.
// The client sends hello{id name, nonce}, and the server challenge{nonce, mac}.
// The client sends proof{purpose, mac}, and the server welcome or refusal{error id, sentence}.
// Every mac covers the role of the sender, both nonces, both versions and the purpose, so that no recording can be
// replayed. These layouts are the same in all versions of the library: otherwise different versions could not report
// that they differ.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "src/base/result.hpp"
#include "src/base/wire_version.hpp"
#include "src/net/partial_message.hpp"
#include "src/net/secret.hpp"

namespace weft::internal::net {

// The use of a connection. Each kind gives `detail` and `token` a meaning.
enum PurposeKind : uint32_t { checkin = 1, control = 2, data = 3, segment = 4, rdma = 5, relay = 6 };
struct Purpose {
    uint32_t kind = 0;
    uint32_t detail = 0;
    uint64_t token = 0;
};

// The process that a client wants to reach. If two hosts have an address in common, a connection to it may reach
// another process of the job, or the client itself.
struct TargetProcess {
    uint32_t process = 0;  // its process_mark(); 0: any
    bool root = false;     // the process where the ranks of the communicator check in
};
// Of this process: random, never 0, and different after a fork.
uint32_t process_mark();

struct HandshakeHead {
    enum MessageType : uint32_t { hello = 1, challenge, proof, welcome, refusal };
    static constexpr uint64_t expected_magic = 0x327465'6e'74666577u;  // "weftnet2"
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
    char error[error_id_bytes] = {};  // the id of the error
    char sentence[384] = {};
};
static_assert(sizeof(RefusalMessage) <= PartialMessage::bytes_most);

// Half of it is random, the rest names the answering process.
Digest server_nonce_of(const TargetProcess& answers);
TargetProcess target_of_nonce(const Digest& challenge_nonce);

Digest challenge_proof(const Secret& secret, const HelloMessage& hello, const ChallengeMessage& challenge);
Digest client_proof(const Secret& secret, const HelloMessage& hello, const ChallengeMessage& challenge,
                    const Purpose& purpose);

// The end that connected. Non-blocking; the owner polls for events().
class ClientHandshake {
  public:
    ClientHandshake(const Identity& identity, const Purpose& purpose, const TargetProcess& target = {});
    // True once welcome. Failures: mismatch.version (proven, so final), and ids of weftRemoteError.
    Result<bool> advance(int socket);
    short events() const;
    bool proven() const { return proven_; }  // the other end knows the secret
    // After a failure: the other end refused, or is not the wanted process. False: the connection ended.
    bool answered() const { return answered_; }
    // The other end speaks the handshake and does not know the communicator.
    bool unknown() const { return unknown_; }
    // The other end knows the secret and is not the wanted process. It did not learn the purpose.
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

// The end that accepted. A client that breaks the protocol learns nothing; any other refused client learns the reason.
class ServerHandshake {
  public:
    using Find = std::function<const Identity*(const IdName&)>;
    // Whether the ranks of that communicator check in at this process.
    using Roots = std::function<bool(const IdName&)>;
    enum class Outcome {
        pending,
        welcome,
        refused,   // the refusal is sent: the client should read it before the socket is closed
        outdated,  // refused for its version after it proved the secret: the ranks here should know
        noise,     // not Weft's handshake
        impostor,  // knows the name but not the secret
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
    Outcome refuse(int socket, ErrorId error, std::string sentence, Outcome outcome);
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
