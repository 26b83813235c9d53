// secret.hpp: what the processes of one communicator know and nobody else does, the public name of it, and proofs.
#pragma once
#include <array>
#include <cstddef>

namespace weft::internal::net {

using Digest = std::array<unsigned char, 32>;

// Knowing it is being a member. A value; never logged, never sent.
struct Secret {
    Digest key{};
    // Proof of knowing the secret, over `message`: HMAC-SHA-256.
    Digest prove(const void* message, size_t bytes) const;
};

// Names a communicator on the network and tells nothing about its secret.
using IdName = std::array<unsigned char, 16>;

struct Identity {
    IdName name{};
    Secret secret;
    // The identity of all who know `secret`.
    static Identity of(const Secret& secret);
};

bool equal_digests(const Digest& one, const Digest& other);  // in constant time
void random_bytes(void* to, size_t bytes);
void ready_crypto();  // to be called before any function of libsodium; cheap

}  // namespace weft::internal::net
