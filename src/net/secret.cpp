#include "src/net/secret.hpp"

#include <sodium.h>

#include <algorithm>

namespace weft::internal::net {

void ready_crypto() {
    static const int once = sodium_init();
    (void)once;
}

Digest Secret::prove(const void* message, size_t bytes) const {
    ready_crypto();
    Digest digest;
    static_assert(crypto_auth_hmacsha256_BYTES == sizeof(Digest) && crypto_auth_hmacsha256_KEYBYTES == sizeof(Digest));
    crypto_auth_hmacsha256(digest.data(), static_cast<const unsigned char*>(message), bytes, key.data());
    return digest;
}

Identity Identity::of(const Secret& secret) {
    Identity identity;
    const Digest digest = secret.prove("identity", 8);
    std::copy_n(digest.begin(), identity.name.size(), identity.name.begin());
    identity.secret = secret;
    return identity;
}

Result<Digest> key_of_password(const std::string& password, const Digest& salt) {
    ready_crypto();
    Digest key;
    static_assert(crypto_pwhash_SALTBYTES <= sizeof(Digest));
    if (crypto_pwhash(key.data(), key.size(), password.data(), password.size(), salt.data(),
                      crypto_pwhash_OPSLIMIT_INTERACTIVE, crypto_pwhash_MEMLIMIT_INTERACTIVE,
                      crypto_pwhash_ALG_ARGON2ID13) != 0)
        return fail(error::memory_exhausted, "{} MiB to derive a key from WEFT_SECRET could not be allocated",
                    crypto_pwhash_MEMLIMIT_INTERACTIVE >> 20);
    return key;
}

bool equal_digests(const Digest& one, const Digest& other) {
    return sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

void random_bytes(void* to, size_t bytes) {
    ready_crypto();
    randombytes_buf(to, bytes);
}

}  // namespace weft::internal::net
