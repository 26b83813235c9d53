// unique_id.hpp: the content of the 128 bytes that name a communicator: a secret, and the place and process of origin.
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

// A value. It contains the secret, so it is never logged.
class UniqueId {
  public:
    // Opens the process's listener and a root, and keeps them open for this id until all hosts have checked in. If the
    // process cannot listen, the id is for ranks of this host.
    static Result<UniqueId> make();
    // For ranks of this host; opens no listener.
    static Result<UniqueId> make_local();
    // argument.unique-id: the bytes are not of weftGetUniqueId, or damaged. init.id-local: they are for ranks of another
    // host.
    static Result<UniqueId> read(const weftUniqueId& bytes);
    // All processes with the same `seed` derive the same id; for launchers without a private channel.
    static UniqueId derive(const std::string& seed);
    // The same for ranks on several hosts, with the root's address. launcher.root-host: the name is too long.
    static Result<UniqueId> derive(const std::string& seed, const std::string& root_host, uint16_t root_port);
    // The root's address in a derived id; empty if the ranks are on one host, and in an id of make().
    std::string root_host() const;
    uint16_t root_port() const;
    // Whether ranks of several hosts can join. The root's place is a list of addresses in an id of make(), and a name
    // in an id of derive(). `derived`: rank 0's process is the root, otherwise the process that made the id.
    bool has_root() const;
    bool derived() const { return content_.pid == 0 || content_.descendant != 0; }
    // The id of a communicator that is made from another one.
    bool of_child() const { return content_.host == 0 && has_root() && content_.root_host[0] == 0; }
    // Whether this process made the id, or the id that it follows from.
    bool made_here() const;
    std::vector<net::Address> root_addresses() const;
    // The id of a communicator made from the one with `secret`; `number` distinguishes its children. The root, at these
    // addresses, is the process of its rank 0, or one that its ranks agree on.
    static UniqueId of_child(const net::Secret& secret, uint64_t number, const net::PackedAddresses& root);
    // The same id with a secret that only a process with `password` (WEFT_SECRET) can know. Takes about 0.1 s: see
    // net::key_of_password().
    Result<UniqueId> keyed(const std::string& password) const;
    // The id of the index-th communicator of a job; 0 is this one.
    UniqueId nth(uint64_t index) const;
    // For a launcher, which makes an id and is no rank. Opens roots for the job's later communicators, whose ids follow
    // from this id and the job's secret (empty: none). Some are open ahead of the last one that was used.
    Status meet_descendants(const std::string& secret) const;

    weftUniqueId bytes() const;
    // The name by which ranks of a host find each other; reveals nothing about the secret.
    std::string rendezvous_name(uint64_t host) const;
    std::string rendezvous_name() const;             // of this host
    uint64_t host() const { return content_.host; }  // where the id was made; 0: derived
    // HMAC of `message` with the secret.
    Digest prove(const void* message, size_t bytes) const;
    // The communicator's name and secret on the network.
    net::Identity identity() const;

  private:
    struct Content {
        uint64_t magic;
        uint32_t version;
        uint32_t pid;
        uint64_t host;
        unsigned char secret[32];
        uint16_t root_port;                            // of a derived id
        char root_host[sizeof(net::PackedAddresses)];  // a name padded with zeros; in an id of make() PackedAddresses
        uint8_t descendant;                            // 1: the id follows from another one
        uint64_t checksum;
    };
    static_assert(sizeof(Content) == WEFT_UNIQUE_ID_BYTES);
    static uint64_t checksum(const Content& content);
    static UniqueId with_secret(const Digest& secret);
    net::Secret secret() const;
    UniqueId descendant(const std::string& label) const;
    Content content_;
};

// The boot and the network namespace, or WEFT_HOSTID: equal exactly for processes that can share memory on this host.
// system.descriptors if it cannot be read now.
Result<uint64_t> host_identity();
// The boot alone: hosts with the same boot (containers, hosts of a simulation by WEFT_HOSTID) share processors. 0:
// unknown.
uint64_t boot_identity();

std::string to_hex(const weftUniqueId& id);
Result<weftUniqueId> from_hex(const std::string& text);

}  // namespace weft::internal
