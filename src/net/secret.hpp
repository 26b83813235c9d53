// secret.hpp: the secret that the processes of one communicator share, its public name, and proofs of knowing it.
#pragma once
#include <array>
#include <cstddef>
#include <string>

#include "src/base/result.hpp"

namespace weft::internal::net {

using Digest = std::array<unsigned char, 32>;

// A process that knows it is a member. A value; never logged, never sent.
struct Secret {
    Digest key{};
    // HMAC-SHA-256 of `message`: proves that the sender knows the secret.
    Digest prove(const void* message, size_t bytes) const;
};

// Names a communicator on the network and reveals nothing about its secret.
using IdName = std::array<unsigned char, 16>;

struct Identity {
    IdName name{};
    Secret secret;
    static Identity of(const Secret& secret);
};

// The key of a text that a user chose, by Argon2id with libsodium's interactive limits. Each guess of an attacker costs
// 64 MiB and about 0.1 s, and so does this call. memory.exhausted: the memory is not available.
Result<Digest> key_of_password(const std::string& password, const Digest& salt);

bool equal_digests(const Digest& one, const Digest& other);  // in constant time
void random_bytes(void* to, size_t bytes);
void ready_crypto();  // call it before any function of libsodium; cheap

}  // namespace weft::internal::net
