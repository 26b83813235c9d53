// handshake.hpp: the authenticated handshake between processes of one host. Four messages over SOCK_SEQPACKET: hello,
// challenge, proof, welcome (with the descriptors of the segment and of the leader's doorbell) or refusal. The proofs
// cover both nonces and the role of the sender, so that no recording can be replayed.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/wire_version.hpp"
#include "src/rendezvous/unique_id.hpp"

namespace weft::internal {

struct HandshakeMessage {
    enum Kind : uint32_t { hello = 1, challenge, proof, welcome, refusal };
    static constexpr uint64_t expected_magic = 0x7466657768616e64u;

    uint64_t magic = expected_magic;
    Kind kind = hello;
    uint32_t weft_version = wire_version;
    int32_t pid = 0;
    int32_t unused = 0;
    Digest nonce{};
    Digest mac{};
    char error[error_id_bytes] = {};  // of a refusal: the id of the error
    char sentence[400] = {};          // of a refusal
};

// Both return nothing while the socket would block, and fail if it is broken or was closed.
// At most two descriptors are sent with a message.
Result<bool> send_message(int socket, const HandshakeMessage& message, std::span<const int> passed = {});
Result<std::optional<HandshakeMessage>> receive_message(int socket, std::vector<Fd>* passed = nullptr);

Digest challenge_mac(const UniqueId& id, const Digest& client_nonce, const Digest& server_nonce);
Digest proof_mac(const UniqueId& id, const Digest& client_nonce, const Digest& server_nonce);

}  // namespace weft::internal
