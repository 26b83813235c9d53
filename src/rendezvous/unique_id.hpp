// unique_id.hpp: what is inside the 128 bytes that name a communicator: a secret, and where and by whom it was made.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/net/address.hpp"
#include "src/net/secret.hpp"

namespace weft::internal {

using net::Digest;
using net::equal_digests;
using net::random_bytes;

// A value; knows the secret, so it is never logged.
class UniqueId {
  public:
    // Opens the process's listener for the hosts of ranks to check in at, and keeps it open for this id until all have met.
    // Where that cannot be, the id is for ranks of this host.
    static Result<UniqueId> make();
    // For ranks of this host; opens nothing.
    static Result<UniqueId> make_local();
    // Refuses bytes that no weftGetUniqueId made, that were damaged on the way, or that were made on another host for
    // ranks of that host.
    static Result<UniqueId> read(const weftUniqueId& bytes);
    // An id that all who know `seed` derive alike; for launchers without a private channel.
    static UniqueId derive(const std::string& seed);
    // The same for ranks on several hosts: the ranks are met at this place. A name too long to fit is a sentence.
    static Result<UniqueId> derive(const std::string& seed, const std::string& root_host, uint16_t root_port);
    // Where a derived id says that ranks are met; an empty name in an id of ranks on one host, and in one of make().
    std::string root_host() const;
    uint16_t root_port() const;
    // Whether ranks of several hosts can meet, and where: of make(), addresses; of derive() a name, to be resolved.
    // `derived`: rank 0's process is the root; else the process that made the id.
    bool has_root() const;
    bool derived() const { return content_.pid == 0 || content_.descendant != 0; }
    // A communicator's that is made from another one.
    bool of_child() const { return content_.host == 0 && has_root() && content_.root_host[0] == 0; }
    // Whether this process made it, or one that it follows from.
    bool made_here() const;
    std::vector<net::Address> root_addresses() const;
    // The id of a communicator made from the one with `secret`; `number` tells it from others made from that. Its rank
    // 0's process, or one that its ranks agree on, is the root, at these addresses.
    static UniqueId of_child(const net::Secret& secret, uint64_t number, const net::PackedAddresses& root);
    // The same id with a secret that whoever read the id cannot know without `secret` (WEFT_SECRET).
    UniqueId keyed(const std::string& secret) const;
    // The id of the index-th communicator of a job; 0 is this one.
    UniqueId nth(uint64_t index) const;
    // For who makes an id and is no rank, a launcher: ranks meet here by the ids that follow from it too, of the job's
    // later communicators, with the job's secret (empty: none). Some are expected ahead of the last that was used.
    Status meet_descendants(const std::string& secret) const;

    weftUniqueId bytes() const;
    // A name that tells nothing about the secret: how ranks of a host find each other.
    std::string rendezvous_name(uint64_t host) const;
    std::string rendezvous_name() const;             // of this host
    uint64_t host() const { return content_.host; }  // where it was made; 0: derived
    // Proof of knowing the secret, over `message`.
    Digest prove(const void* message, size_t bytes) const;
    // What the communicator is and proves on the network.
    net::Identity identity() const;

  private:
    struct Content {
        uint64_t magic;
        uint32_t version;
        uint32_t pid;
        uint64_t host;
        unsigned char secret[32];
        uint16_t root_port;  // of a derived id
        char root_host[sizeof(
            net::PackedAddresses)];  // and zeros to its end; of a made id a zero, a count and packed addresses
        uint8_t descendant;          // 1: not the id that was made, but one that follows from it
        uint64_t checksum;
    };
    static_assert(sizeof(Content) == WEFT_UNIQUE_ID_BYTES);
    static uint64_t checksum(const Content& content);
    static UniqueId with_secret(const Digest& secret);
    net::Secret secret() const;
    UniqueId descendant(const std::string& label) const;
    Content content_;
};

// The boot and the network namespace, or WEFT_HOSTID: equal exactly for processes that can meet on this host.
// weftSystemError where that cannot be read now.
Result<uint64_t> host_identity();
// The boot alone: hosts that have it in common (containers, pretended ones) share processors. 0: unknown.
uint64_t boot_identity();

std::string to_hex(const weftUniqueId& id);
Result<weftUniqueId> from_hex(const std::string& text);

}  // namespace weft::internal
