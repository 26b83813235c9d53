#include "src/rendezvous/unique_id.hpp"

#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sstream>

#include "src/base/fd.hpp"
#include "src/base/file.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/control/control_connection.hpp"
#include "src/rendezvous/root_rendezvous.hpp"

namespace weft::internal {

namespace {

constexpr uint64_t id_magic = 0x64692d7466657731u;

uint64_t hash_of(const void* bytes, size_t count) {
    net::ready_crypto();
    unsigned char hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, static_cast<const unsigned char*>(bytes), count, nullptr, 0);
    uint64_t value;
    memcpy(&value, hash, sizeof value);
    return value;
}

uint64_t hash_of(const std::string& text) { return hash_of(text.data(), text.size()); }

// The roots of a job's later communicators. Some are open ahead of the last one that was used, since ranks make
// communicators in one order; a rank that comes too early tries again. Owned by its roots, thread-bound to the service
// thread.
class Descendants : public std::enable_shared_from_this<Descendants> {
  public:
    // `open`: the id whose root is open already.
    Descendants(std::shared_ptr<AcceptDispatcher> dispatcher, const UniqueId& first, const net::Identity& open)
        : dispatcher_(std::move(dispatcher)), first_(first), open_(open.name) {}
    void open_after(uint64_t used) {
        for (; next_ < used + ahead; ++next_) {
            const net::Identity identity = first_.nth(next_).identity();
            if (identity.name == open_) continue;
            auto on_use = [self = shared_from_this(), index = next_] { self->open_after(index); };
            RootRendezvous::keep(std::make_unique<RootRendezvous>(dispatcher_, identity, std::move(on_use)),
                                 identity.name);
        }
    }

  private:
    static constexpr uint64_t ahead = 64;
    std::shared_ptr<AcceptDispatcher> dispatcher_;
    UniqueId first_;
    net::IdName open_;
    uint64_t next_ = 0;
};

}  // namespace

uint64_t boot_identity() {
    std::string boot;
    std::istringstream(system_file("/proc/sys/kernel/random/boot_id")) >> boot;
    return boot.empty() ? 0 : hash_of(boot);
}

Result<uint64_t> host_identity() {
    static std::atomic<uint64_t> known{0};  // so that later calls need no descriptor
    uint64_t identity = known.load(std::memory_order_relaxed);
    if (identity != 0) return identity;
    std::string facts;
    if (!options().hostid.empty()) return hash_of("WEFT_HOSTID " + options().hostid);
    errno = 0;
    std::istringstream file(system_file("/proc/sys/kernel/random/boot_id"));
    // Without /proc all ranks get the same value. With too few descriptors only this process would get another one.
    if (file.str().empty() && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return fail(error::system_descriptors, "the identity of this host could not be read: {}",
                    no_descriptor_text(errno));
    file >> facts;
    struct stat status {};
    if (stat("/proc/self/ns/net", &status) == 0) facts += fmt::format(" {}", status.st_ino);
    identity = hash_of(facts);
    known.store(identity, std::memory_order_relaxed);
    return identity;
}

uint64_t UniqueId::checksum(const Content& content) { return hash_of(&content, offsetof(Content, checksum)); }

UniqueId UniqueId::with_secret(const Digest& secret) {
    UniqueId id;
    memset(&id.content_, 0, sizeof id.content_);
    id.content_.magic = id_magic;
    id.content_.version = 1;
    memcpy(id.content_.secret, secret.data(), secret.size());
    id.content_.checksum = checksum(id.content_);
    return id;
}

Result<UniqueId> UniqueId::make() {
    auto id = make_local();
    if (!id) return id;
    auto dispatcher = AcceptDispatcher::of_process();
    if (!dispatcher) {
        if (dispatcher.status().code() == weftInvalidArgument) return dispatcher.take_status();  // an option's value
        WEFT_LOG(info, init, "this unique id is for ranks of this host: {}", dispatcher.status().text());
        return id;
    }
    const net::PackedAddresses place = net::pack_addresses((*dispatcher)->listener().addresses());
    memcpy(id->content_.root_host, place.data(), place.size());
    id->content_.checksum = checksum(id->content_);
    RootRendezvous::keep(std::make_unique<RootRendezvous>(std::move(*dispatcher), id->identity()), id->identity().name);
    return id;
}

UniqueId UniqueId::of_child(const net::Secret& secret, uint64_t number, const net::PackedAddresses& root) {
    const std::string label = fmt::format("child {}", number);
    UniqueId id = with_secret(secret.prove(label.data(), label.size()));
    memcpy(id.content_.root_host, root.data(), root.size());
    id.content_.checksum = checksum(id.content_);
    return id;
}

bool UniqueId::has_root() const { return content_.root_host[0] != 0 || content_.root_host[1] != 0; }

bool UniqueId::made_here() const {
    const auto host = host_identity();
    return host && content_.host == *host && content_.pid == uint32_t(getpid());
}

Status UniqueId::meet_descendants(const std::string& secret) const {
    if (!has_root()) return ok();
    auto dispatcher = AcceptDispatcher::of_process();
    if (!dispatcher) return dispatcher.take_status();
    auto first = secret.empty() ? Result<UniqueId>(*this) : keyed(secret);
    if (!first) return first.take_status();
    auto descendants = std::make_shared<Descendants>(*dispatcher, *first, identity());
    (*dispatcher)->service().run([&] { descendants->open_after(0); });
    return ok();
}

std::vector<net::Address> UniqueId::root_addresses() const {
    std::vector<net::Address> addresses;
    const auto* at = reinterpret_cast<const std::byte*>(content_.root_host + 2);
    const auto* end = reinterpret_cast<const std::byte*>(content_.root_host + sizeof content_.root_host);
    for (int left = content_.root_host[1]; left > 0; --left)
        if (const auto address = net::Address::unpack(at, end)) addresses.push_back(*address);
    return addresses;
}

Result<UniqueId> UniqueId::make_local() {
    auto host = host_identity();
    if (!host) return host.take_status();
    Digest secret;
    random_bytes(secret.data(), secret.size());
    UniqueId id = with_secret(secret);
    id.content_.pid = uint32_t(getpid());
    id.content_.host = *host;
    id.content_.checksum = checksum(id.content_);
    return id;
}

Result<UniqueId> UniqueId::read(const weftUniqueId& bytes) {
    UniqueId id;
    memcpy(&id.content_, &bytes, sizeof bytes);
    if (id.content_.magic != id_magic)
        return fail(error::argument_unique_id,
                    "this is no unique id of Weft: pass the 128 bytes that weftGetUniqueId wrote on one rank, "
                    "unchanged, to all ranks");
    if (id.content_.checksum != checksum(id.content_) || id.content_.version != 1)
        return fail(error::argument_unique_id,
                    "the unique id was damaged on its way here: pass all of its 128 bytes, zeros too");
    auto host = host_identity();
    if (!host) return host.take_status();
    if (id.content_.host != *host && !id.has_root())
        return fail(error::init_id_local,
                    "the unique id was made on another host or in another network namespace, for the ranks there: its "
                    "maker does not listen on a network, and its log at INFO says why");
    return id;
}

UniqueId UniqueId::derive(const std::string& seed) {
    net::ready_crypto();
    Digest secret;
    crypto_generichash(secret.data(), secret.size(), reinterpret_cast<const unsigned char*>(seed.data()), seed.size(),
                       nullptr, 0);
    return with_secret(secret);
}

Result<UniqueId> UniqueId::derive(const std::string& seed, const std::string& root_host, uint16_t root_port) {
    UniqueId id = derive(seed);
    if (root_host.size() >= sizeof id.content_.root_host)
        return fail(error::launcher_root_host,
                    "the name of rank 0's host, `{}`, has {} characters, of which {} fit into a unique id: set "
                    "WEFT_ROOT_HOST to a shorter name or to its address, on all ranks",
                    root_host, root_host.size(), sizeof id.content_.root_host - 1);
    memcpy(id.content_.root_host, root_host.data(), root_host.size());
    id.content_.root_port = root_port;
    id.content_.checksum = checksum(id.content_);
    return id;
}

std::string UniqueId::root_host() const {
    return {content_.root_host, strnlen(content_.root_host, sizeof content_.root_host)};
}

uint16_t UniqueId::root_port() const { return content_.root_port; }

// The same root and maker, with a secret that is derived from this one.
UniqueId UniqueId::descendant(const std::string& label) const {
    UniqueId id = *this;
    const Digest secret = prove(label.data(), label.size());
    memcpy(id.content_.secret, secret.data(), secret.size());
    id.content_.descendant = 1;
    id.content_.checksum = checksum(id.content_);
    return id;
}

// The salt follows from the id, so that no table of keys serves two jobs.
Result<UniqueId> UniqueId::keyed(const std::string& password) const {
    auto key = net::key_of_password(password, prove("salt", 4));
    if (!key) return key.take_status();
    return descendant("keyed by " + std::string(key->begin(), key->end()));
}

UniqueId UniqueId::nth(uint64_t index) const {
    return index == 0 ? *this : descendant(fmt::format("communicator {}", index));
}

weftUniqueId UniqueId::bytes() const {
    weftUniqueId bytes;
    memcpy(&bytes, &content_, sizeof bytes);
    return bytes;
}

std::string UniqueId::rendezvous_name() const {
    const auto host = host_identity();
    return rendezvous_name(host ? *host : 0);
}

std::string UniqueId::rendezvous_name(uint64_t host) const {
    char label[16] = "segment";
    memcpy(label + 8, &host, sizeof host);
    const Digest digest = prove(label, sizeof label);
    std::string name = "weft-";
    for (size_t i = 0; i < 16; ++i) name += fmt::format("{:02x}", digest[i]);
    return name;
}

net::Secret UniqueId::secret() const {
    net::Secret secret;
    memcpy(secret.key.data(), content_.secret, secret.key.size());
    return secret;
}

Digest UniqueId::prove(const void* message, size_t bytes) const { return secret().prove(message, bytes); }

net::Identity UniqueId::identity() const { return net::Identity::of(secret()); }

std::string to_hex(const weftUniqueId& id) {
    std::string text;
    for (const char byte : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

Result<weftUniqueId> from_hex(const std::string& text) {
    weftUniqueId id;
    size_t length = 0;
    if (sodium_hex2bin(reinterpret_cast<unsigned char*>(id.internal), sizeof id.internal, text.data(), text.size(),
                       nullptr, &length, nullptr) != 0 ||
        length != sizeof id.internal)
        return fail(error::argument_unique_id, "a unique id in text is {} hexadecimal digits; this has {} characters",
                    2 * sizeof id.internal, text.size());
    return id;
}

}  // namespace weft::internal
